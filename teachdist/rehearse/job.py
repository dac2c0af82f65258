"""The job: all virtual ranks of one rehearsal, their groups and stores, and who has failed."""

import contextlib
import gc
import importlib
import os
import sys

import torch

from teachdist.rehearse.clock import Clock, Modelled, Recorded, Recording
from teachdist.rehearse.cuda_as_cpu import OnCpu, patch_cuda
from teachdist.rehearse.errors import Stopped
from teachdist.rehearse.failures import Failures
from teachdist.rehearse.group import Group
from teachdist.rehearse.machine import machine
from teachdist.rehearse.model import Counting, device
from teachdist.rehearse.novalues import patch_values, without_values
from teachdist.rehearse.patches import Patches
from teachdist.rehearse.prices import Prices
from teachdist.rehearse.rank import Rank
from teachdist.rehearse.refused import patch_refused
from teachdist.rehearse.scheduler import Scheduler
from teachdist.rehearse.sharding import patch_sharding
from teachdist.rehearse.state import Base, Swap
from teachdist.rehearse.store import Shelf
from teachdist.rehearse.torchs import patch_torch
from teachdist.rehearse.waits import patch_waits

_STACK = (
    16 << 20
)  # bytes of address space for a rank's stack, as a main thread has more than others
_current = None  # the job that runs now: a process can play only one at a time


class Job:
    """The ranks of one rehearsal.

    values: whether tensors have values. device_as: "cpu" to run programs for CUDA on the CPU.
    """

    def __init__(self, ranks, topology=None, seed=0, clock="measured", **how):
        self.machine = machine(topology, ranks)
        self.device = device(how.get("device") or "h100") if clock == "modelled" else None
        clocks, timed = self._clocks(clock, ranks)
        self._recording = clock if isinstance(clock, Recording) else None
        self.prices = Prices(self.machine, ranks)
        self.seed = seed
        self.values = how.get("values", True)
        self.buffers = how.get("buffers", True)  # whether a send may be over before its receive
        self.device_as = how.get("device_as")
        self.base = Base(seed)
        self.swap = Swap(self.base)
        self.scheduler = Scheduler(self.swap, self._stuck, seed, timed)
        self.ranks = [Rank(number, clocks(), self) for number in range(ranks)]
        self.failures = Failures(self)
        self.orders = None  # who decides what may go either way, see `explore`
        self.keep = []  # what C++ holds without holding its Python half
        self.traffic = {"inside": 0.0, "between": 0.0}  # bytes by kind of link
        self.matches = []  # (send, receive, ranks in the group), in the order in which they met
        self.calls = []  # (group, words, began, until, its number of ranks)
        self.memory = {}  # rank -> bytes of tensors at their peak, if they are counted
        self.stays = False  # whether ranks that are done may be given more to do
        self.folder = None  # whose modules each rank has for itself
        self._groups, self._made, self._shelves = {}, {}, {}
        for rank in self.ranks:
            rank.state.begin(self.base)

    def _clocks(self, clock, ranks):
        """(what makes a rank's clock, whether the clocks are the same in every run)."""
        if clock == "measured":
            factor = self.machine.factor * self.machine.crowd(ranks)
            return lambda: Clock(factor), False
        if clock == "modelled":
            return Modelled, True
        if isinstance(clock, Recording):
            return lambda: Recorded(clock), True
        raise ValueError(
            f'clock={clock!r}: expected "measured", "recorded", "modelled", or the recording of an '
            "earlier rehearsal"
        )

    # -- running ---------------------------------------------------------------------------

    @contextlib.contextmanager
    def playing(self, *more):
        """Patches are in place inside, and the process has its own state again afterwards.

        more: called as patch(patches, job) for further ones.
        """
        global _current
        if _current is not None:
            raise RuntimeError(
                "rehearse: another rehearsal runs in this process; ranks cannot rehearse themselves"
            )
        _current = self
        patches, threads = Patches(), torch.get_num_threads()
        hook = sys.excepthook
        try:
            torch.set_num_threads(1)
            for patch in (
                patch_waits,
                patch_torch,
                patch_refused,
                patch_values,
                patch_cuda,
                patch_sharding,
                *more,
            ):
                patch(patches, self)
            self._uncharged_imports(patches)
            gc.callbacks.append(self._uncharged_collection)
            patches.callback(gc.callbacks.remove, self._uncharged_collection)
            yield self
        finally:
            _current = None
            patches.close()
            self.swap.home()
            sys.excepthook = hook
            torch.set_num_threads(threads)
            self._restore_environment()

    def _uncharged_imports(self, patches):
        """Who imports a module first must not pay for it: on real ranks all would."""

        def loading(original):
            def load(*args):
                clock = self.scheduler.running.rank.clock
                clock.pause()
                try:
                    module = original(*args)
                finally:
                    clock.leave()
                self._own_module(args[0])
                return module

            return load

        patches.for_ranks(self.scheduler, importlib._bootstrap, "_find_and_load", loading)

    def _uncharged_collection(self, phase, info):
        """Python collects the garbage of all ranks together, on whichever rank runs just then."""
        actor = self.scheduler.me()
        if actor is not None and phase == "start":
            actor.rank.clock.pause()
        elif actor is not None:
            actor.rank.clock.leave()

    def _own_module(self, name):
        """A module of the script's folder is each rank's own: a process would load it anew."""
        module = sys.modules.get(name)
        file = getattr(module, "__file__", None)
        if self.folder and file and file.startswith(self.folder):
            self.scheduler.running.rank.state.modules[name] = module
            self.swap.own_modules.add(name)

    def _restore_environment(self):
        """What ranks wrote went to C as well; there it is one environment for all."""
        mine = self.base.environment
        for rank in self.ranks:
            for key, value in rank.state.environment.items():
                if mine.get(key) != value:
                    if key in mine:
                        os.putenv(key, mine[key])
                    else:
                        os.unsetenv(key)

    def play(self, main, on=None):
        """Run main(rank) on the ranks `on`, or on every rank, until all are over."""
        import threading

        before = threading.stack_size(_STACK)
        try:
            for rank in self.ranks if on is None else [self.ranks[number] for number in on]:
                self._start(rank, main)
        finally:
            threading.stack_size(before)
        self.scheduler.run()

    def _start(self, rank, main):
        rank.over, rank.error = False, None
        rank.actor = self.scheduler.add(rank, lambda: self._life(rank, main), f"rank {rank.number}")

    def _life(self, rank, main):
        try:
            with self._modes(rank):
                rank.result = main(rank)
                rank.settle()
            rank.clock.finish()
        except Stopped:
            raise
        except SystemExit as error:
            if error.code not in (None, 0):
                self.failures.failed(rank, error)
        except BaseException as error:  # noqa: BLE001  it is told where the rehearsal was begun
            self.failures.failed(rank, error)
        finally:
            rank.over = True

    @contextlib.contextmanager
    def _modes(self, rank):
        """What holds for a rank's own thread while its program runs."""
        with contextlib.ExitStack() as modes:
            modes.enter_context(torch.autograd.set_multithreading_enabled(False))
            if not self.values:
                modes.enter_context(without_values(rank, self))
            if self.device_as == "cpu":
                modes.enter_context(OnCpu())
            if self.device and self.values:
                modes.enter_context(Counting(rank.clock, self.device))
            yield

    @property
    def recording(self):
        """The recording that this job goes by, or that its clocks have made."""
        return self._recording or Recording(self.ranks)

    # -- groups and stores -----------------------------------------------------------------

    def group(self, rank, name, ranks):
        """The `Group` of these ranks; the n-th that each of them makes under this name."""
        key = name if name.isdigit() else ""
        count = rank.counts[name, tuple(ranks)] = rank.counts.get((name, tuple(ranks)), 0) + 1
        if key:
            self._agree(rank, name, ranks, count)
        place = key, tuple(ranks), count
        if place not in self._groups:
            self._groups[place] = Group(self, place, ranks)
        return self._groups[place]

    def _agree(self, rank, name, ranks, count):
        first, number = self._made.setdefault((name, count), (list(ranks), rank.number))
        if first != list(ranks) and not len(first) == len(ranks) == 1:
            raise ValueError(
                f'new_group: rank {rank.number} makes group "{name}" of ranks {list(ranks)}, but '
                f'rank {number} has made group "{name}" of ranks {first}. Every rank of the job '
                "must call new_group for every group, in the same order, also for groups that it "
                "is not in; or pass use_local_synchronization=True."
            )

    def groups(self):
        """All groups that there are."""
        return self._groups.values()

    def _stuck(self):
        self.failures.stuck()

    def shelf(self, name, key):
        """The store that `key` names: one for all ranks that ask."""
        if (name, key) not in self._shelves:
            self._shelves[name, key] = Shelf(self, name)
        return self._shelves[name, key]

    def record(self, call, entry, group, began, until):
        """A collective was carried out."""
        self.calls.append((group.key, entry.call, began, until, group.size))
        inside, between = self.prices.volume(call, entry.how, group)
        self.traffic["inside"] += inside
        self.traffic["between"] += between

    def record_message(self, source, dest, nbytes):
        """A message was sent, between ranks of the job."""
        host = self.machine.host
        self.traffic["inside" if host(source) == host(dest) else "between"] += nbytes

    def left(self, communicator):
        """A rank has left a group."""
