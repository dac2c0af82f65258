"""What a process has for itself, and ranks that are threads must have for themselves as well.

As one rank runs at a time, such state needs no lock and no lookup per thread: it is exchanged when
the baton goes to another rank, as an operating system does with registers.

    exchanged at every switch      torch.distributed's world, torch's random numbers, the
                                   environment, sys.argv, __main__, the default dtype,
                                   filters of warnings
    exchanged when it was used     Python's and numpy's random numbers (up to 100 us)
    a thread's own already         no_grad, autocast, the stack of meshes, the C++ registry of
                                   groups (after `_set_thread_isolation_mode`)

A process of torchrun begins with torch's fixed seed, and with seeds of Python and numpy that nobody
chose. Here those are the rehearsal's seed, on all ranks, so that a run can be repeated.
"""

import ctypes
import os
import random
import sys
import warnings

import numpy as np
import torch
from torch.distributed import distributed_c10d as c10d

from teachdist.backend.execution import options
from teachdist.tracing import record

TORCHS_SEED = 67280421310721  # with which every new process begins


class World(c10d._World):
    """torch's table of process groups, with dictionaries of its own."""

    def __init__(self):
        super().__init__()
        self.groups_made = 0

    pg_map = property(lambda self: self.__dict__.setdefault("_maps", {}))
    pg_names = property(lambda self: self.__dict__.setdefault("_names", {}))
    pg_group_ranks = property(lambda self: self.__dict__.setdefault("_ranks", {}))
    pg_backend_config = property(lambda self: self.__dict__.setdefault("_configs", {}))
    tags_to_pg = property(lambda self: self.__dict__.setdefault("_by_tag", {}))
    pg_to_tag = property(lambda self: self.__dict__.setdefault("_tags", {}))

    @property
    def group_count(self):
        """How many groups there have been; it names the next."""
        return self.groups_made

    @group_count.setter
    def group_count(self, value):
        self.groups_made = value


class State:
    """The state of one rank's process. `take` keeps what is installed, `put` installs it."""

    def __init__(self):
        self.world = World()
        self.environment = None  # a dict, see `os.environ`
        self.argv = None
        self.main = None
        self.streams = None  # (stdout, stderr)
        self.warnings = None  # filters, and who shows a warning
        self.generator = None
        self.dtype = None
        self.tracers = []  # the open traces, see `tracing.record`
        self.used = []  # the algorithms of `teachdist.use`
        self.lazy = {}
        self.modules = {}  # those of the program's own folder

    def begin(self, base):
        """What a new process would start with."""
        self.environment = dict(base.environment)
        self.argv = list(sys.argv)
        self.main = sys.modules.get("__main__")
        self.streams = sys.stdout, sys.stderr
        self.warnings = _warnings()
        self.dtype = torch.get_default_dtype()
        self.generator = base.fresh_generator
        self.lazy = dict(base.fresh)

    def set_variables(self, variables):
        """Set environment variables of this rank alone; C code does not see them."""
        encode = os.environ.encodekey, os.environ.encodevalue
        for key, value in variables.items():
            self.environment[encode[0](key)] = encode[1](value)

    def enter_thread(self):
        """The C++ registry of groups is a thread's own: tell it of those that there are."""
        for group, name in self.world.pg_names.items():
            c10d._register_process_group(name, group)

    def take(self):
        """Keep what the process has now."""
        self.argv, self.main = sys.argv, sys.modules.get("__main__")
        self.streams = sys.stdout, sys.stderr
        self.warnings = _warnings()
        self.generator = torch.default_generator.get_state()
        self.dtype = torch.get_default_dtype()

    def put(self):
        """Give the process this rank's."""
        c10d._world = self.world
        record._tracers, options._used = self.tracers, self.used
        os.environ._data = self.environment
        os.environb._data = self.environment
        sys.argv = self.argv
        sys.modules["__main__"] = self.main
        sys.stdout, sys.stderr = self.streams
        if any(mine is not there for mine, there in zip(self.warnings, _warnings(), strict=True)):
            _set_warnings(self.warnings)
        torch.default_generator.set_state(self.generator)
        if self.dtype != torch.get_default_dtype():
            torch.set_default_dtype(self.dtype)


def _warnings():
    """What `warnings.catch_warnings` exchanges, and so pytest.warns on a rank."""
    return warnings.filters, warnings.showwarning, warnings._showwarnmsg_impl


def _set_warnings(those):
    warnings.filters, warnings.showwarning, warnings._showwarnmsg_impl = those
    getattr(warnings, "_filters_mutated", int)()  # what was shown once may be shown again


class Base(State):
    """The state of the process itself, to which it returns."""

    def __init__(self, seed):
        super().__init__()
        self.world = c10d._world
        self.tracers, self.used = record._tracers, options._used
        self.environment = os.environ._data
        self.take()
        before = torch.default_generator.get_state()
        torch.default_generator.manual_seed(TORCHS_SEED)
        self.fresh_generator = torch.default_generator.get_state()
        torch.default_generator.set_state(before)
        self.lazy = {name: kind.get() for name, kind in LAZY.items()}
        self.fresh = {}  # what every rank begins with
        for name, kind in LAZY.items():
            kind.seed(seed)
            self.fresh[name] = kind.get()
            kind.put(self.lazy[name])


class Numbers:
    """Python's or numpy's random numbers, of which each process has one generator.

    A rank's are put in place only if they differ from those that are there: that is when some rank
    has drawn or seeded. The generator's bytes tell it in a microsecond, getting or setting its
    state takes up to a hundred.
    """

    def __init__(self, address, get, put, seed):
        self._address, self.get, self.put, self.seed = address, get, put, seed

    def mark(self):
        """Something that differs once numbers were drawn."""
        return ctypes.string_at(self._address(), 2500)


def _python_address():
    return id(random._inst) + object.__basicsize__  # an index and 624 words


def _numpy_address():
    return np.random.mtrand._rand._bit_generator.ctypes.state_address


LAZY = {
    "python": Numbers(_python_address, random.getstate, random.setstate, random.seed),
    "numpy": Numbers(_numpy_address, np.random.get_state, np.random.set_state, np.random.seed),
}


class Swap:
    """Exchanges the state of ranks; knows whose is installed."""

    def __init__(self, base):
        self._base = self._installed = base
        self.own_modules = set()  # names of modules that each rank has for itself
        self._there = dict(base.lazy)  # the state that each generator has at present
        self._marks = {name: kind.mark() for name, kind in LAZY.items()}

    def __call__(self, rank):
        """Have the process be that of `rank`."""
        state = rank.state
        if state is not self._installed:
            self._exchange(state)

    def home(self):
        """Give the process its own state back."""
        self._exchange(self._base)

    def _exchange(self, state):
        before, self._installed = self._installed, state
        before.take()
        for name, kind in LAZY.items():
            mark = kind.mark()
            if mark != self._marks[name]:
                self._marks[name] = mark
                before.lazy[name] = self._there[name] = kind.get()
            wanted = state.lazy[name]
            if wanted is not self._there[name]:
                kind.put(wanted)
                self._there[name] = wanted
                self._marks[name] = kind.mark()
        for name in self.own_modules:
            if name in state.modules:
                sys.modules[name] = state.modules[name]
            else:
                sys.modules.pop(name, None)
        state.put()
