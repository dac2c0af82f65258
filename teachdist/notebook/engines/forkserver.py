"""One process imports torch, then forks an engine per rank.

Importing torch takes seconds of CPU. Four engines that import it one by one keep two cores busy
for ten seconds before the first collective. Here one process imports everything that an engine
needs and forks; the children share its memory pages until they write to them. So four ranks are
there in about six seconds, in a third of the memory.

What forking asks of us: nothing that starts threads, and no torch operation, before the fork
(a thread is not copied by fork, but the lock that it held is). CUDA cannot be used after a fork
from a process that has touched it; importing torch does not touch it.

The server stays as the parent. A child that dies is forked again **under the same engine id**, so
the id is the rank, always, and killing all the children is a restart: no other message is needed.
The new child is not yet a member of the process group; whoever restarts the ranks sees to that.

What the fork shares and separate processes would not: the state of random generators, which each
child seeds anew, and the order in which a set of strings is iterated, which nothing can change.
(The launcher "stock" starts separate processes.)

Nothing outlives its parent: the operating system is asked to kill the children when this process
ends, and this process ends when the one that started it does. A rank leads a process group, in
which its own children are; it is killed when the rank has ended, however it ended.

Linux only. Elsewhere ``launcher.py`` starts ordinary engines.
"""

import argparse
import contextlib
import ctypes
import gc
import importlib
import os
import select
import signal
import sys
import time

from teachdist.notebook.engines.orphan_guard import AGAIN, LOOK_EVERY, orphaned

PATIENCE = 1.5  # seconds between asking the engines to end and killing them
TOO_SHORT = 3.0  # an engine that ends by itself before this has failed to start
TRIES = 3  # when an engine fails to start so often in a row, all is given up

_PR_SET_PDEATHSIG = 1
_IMPORTS = (
    "torch.distributed",
    "teachdist.notebook.engines.engine",
    "teachdist.notebook.engines.rank",
    "teachdist.backend",
    "ipykernel.debugger",
    "IPython.core.completerlib",
    "IPython.extensions.storemagic",
    "tornado.platform.asyncio",
)


class ForkServer:
    """Keep one engine alive per rank until told to stop."""

    def __init__(self, ranks, engine_args):
        self.ranks = ranks
        self.engine_args = engine_args
        self.children = {}  # pid -> rank
        self.born = {}  # rank -> time of the last fork
        self.failures = dict.fromkeys(range(ranks), 0)
        self.stopping = False
        self.wakeup = None

    def run(self, parent):
        """Fork every rank, replace the dead; return when told to stop or orphaned."""
        self._listen_to_signals()
        for rank in range(self.ranks):
            self._fork(rank)
        while not self.stopping and not orphaned(parent):
            self._sleep(LOOK_EVERY)
            self._replace_dead()
        self._end_children()

    def _listen_to_signals(self):
        self.wakeup, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, self._forward)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def _sleep(self, seconds):
        """Sleep so long, or until a signal arrives."""
        if select.select([self.wakeup], [], [], seconds)[0]:
            os.read(self.wakeup, 4096)

    def _stop(self, *_):
        self.stopping = True

    def _forward(self, signum, _frame):
        self._signal_children(signum)

    def _signal_children(self, signum):
        for pid in list(self.children):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signum)

    def _fork(self, rank):
        self.born[rank] = time.monotonic()
        server = os.getpid()
        pid = os.fork()
        if pid:
            self.children[pid] = rank
            return
        _become_child(server)
        _serve(rank, self.engine_args)

    def _reap(self):
        """Ranks whose process ended since the last look: a list of (rank, exit code)."""
        ended = [
            pid
            for pid in self.children
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        ]
        return [(self.children.pop(pid), _bury(pid)) for pid in ended]

    def _replace_dead(self):
        for rank, code in self._reap():
            lived = time.monotonic() - self.born[rank]
            asked_for = code in (-signal.SIGKILL, AGAIN)
            failed = lived < TOO_SHORT and not asked_for
            self.failures[rank] = self.failures[rank] + 1 if failed else 0
            if self.failures[rank] >= TRIES:
                print(f"rank {rank} ended {TRIES} times at its start, exit code {code}", flush=True)  # noqa: T201
                self.stopping = True  # without it the others are of no use
            elif not self.stopping:
                self._fork(rank)

    def _end_children(self):
        self._signal_children(signal.SIGTERM)
        deadline = time.monotonic() + PATIENCE
        while self.children and time.monotonic() < deadline:
            self._sleep(0.05)
            self._reap()
        self._signal_children(signal.SIGKILL)
        for pid in self.children:
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
            _bury(pid)


def _bury(pid):
    """Take notice of the end of a rank, and end what it has left; its exit code.

    Until then its pid, which is also its group's, cannot be another's.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _become_child(server):
    """Undo in the child what belongs to the server."""
    os.setpgid(0, 0)
    signal.set_wakeup_fd(-1)
    for signum in (signal.SIGTERM, signal.SIGCHLD):
        signal.signal(signum, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != server:  # it died before the line above
        os._exit(1)


def _serve(rank, engine_args):
    """Be the engine ``rank``; does not return."""
    from teachdist.notebook.engines.engine import ForkedNanny, RankEngine

    _seed()
    RankEngine.forked_nanny = ForkedNanny()
    RankEngine.launch_instance(argv=[f"--IPEngine.id={rank}", *engine_args])
    sys.exit(0)


def _seed():
    """Give this process random numbers of its own. (Python does so itself for ``random``.)"""
    import numpy as np
    import torch

    torch.default_generator.seed()
    np.random.seed()  # the generator that everybody shares


def _import(names):
    """Import what engines will need; not debugpy, as nobody can attach it to an engine."""
    sys.modules["debugpy"] = None
    try:
        for name in names:
            importlib.import_module(name)
    finally:
        del sys.modules["debugpy"]


def _learn_colours():
    """Prepare what colours a traceback: a second of CPU, once instead of once per rank."""
    from pygments.lexers import get_lexer_by_name

    for _ in get_lexer_by_name("python3").get_tokens("1"):
        pass


def main():
    """Import, freeze, fork, stay."""
    parent = os.getppid()
    parser = argparse.ArgumentParser(prog="teachdist.notebook.engines.forkserver")
    parser.add_argument("--ranks", type=int, required=True)
    options, engine_args = parser.parse_known_args()
    _import(_IMPORTS)
    _learn_colours()
    gc.collect()
    gc.freeze()  # a collection in a child would touch, and so copy, every shared page
    ForkServer(options.ranks, engine_args).run(parent)


if __name__ == "__main__":
    main()
