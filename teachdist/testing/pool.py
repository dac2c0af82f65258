"""Processes as ranks, that take one function after the other: what `--ranks-real` runs tests on.

    with RankPool(3) as pool:
        assert pool.run(total) == [3, 3, 3]
        pool.outcomes(fail)  # what each rank returned *or raised*, for tests about failures

The function may be a closure or a lambda (cloudpickle ships it). It runs with the default process
group initialised, and with RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT set as torchrun
would; `backend=None` leaves the process group to the function.

A rank that raises makes `run` raise the same exception, with rank and traceback as notes. Past the
time limit everything is killed, and the error shows where each rank stood.

Starting a rank must be cheap and must not depend on what the tests have done to their own process
(autograd, for one, refuses to work in a fork of a process that has used it). So ranks are forked
from multiprocessing's fork server, a clean process that has imported torch once and done nothing
else: about 0.1 s for a rank, against 3 s to spawn it.
"""

import contextlib
import ctypes
import faulthandler
import io
import marshal
import multiprocessing
import os
import pickle
import shutil
import signal
import socket
import sys
import tempfile
import time
import traceback
import types
from datetime import timedelta
from multiprocessing import connection
from pathlib import Path

import cloudpickle

GRACE = 5  # seconds that the other ranks get to finish once one has failed

context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(
    ["torch", "torch.distributed.optim", "torch._dynamo", "cloudpickle", "pytest"]
)


class RankDiedError(Exception):
    """A rank's process ended without an answer."""


class RankTimeoutError(Exception):
    """A rank had not answered when the time was up."""


class SharedPools:
    """Pools that are kept for further calls: the few that were used last."""

    _MOST = 3

    def __init__(self):
        self._pools = {}  # (n, backend) -> RankPool, the most recently used last

    def get(self, n, backend):
        """The pool of n ranks on backend, made when first asked for."""
        pool = self._pools.pop((n, backend), None) or RankPool(n, backend=backend)
        while len(self._pools) >= self._MOST:
            self._pools.pop(next(iter(self._pools))).close()
        self._pools[n, backend] = pool
        return pool

    def close(self):
        """End them all."""
        while self._pools:
            self._pools.popitem()[1].close()


class RankPool:
    """n ranks that take one function after the other.

    After a failure or a time-out nobody knows what state the ranks are in: they are killed, and
    the next call starts new ones.
    """

    def __init__(self, n, backend="gloo", timeout=60, grace=GRACE, limit=None):
        self.n = n
        self.backend = backend
        self.timeout = timeout
        self.grace = grace
        self.limit = limit or timeout  # of the default process group
        self._processes = []
        self._pipes = []
        self._directory = None

    def run(self, fn, *args, timeout=None, **kwargs):
        """What fn returned on each rank; raises what the first rank to fail raised."""
        outcomes, failed = self._run(fn, args, kwargs, timeout)
        if not failed:
            return outcomes
        error = outcomes[failed[0]]
        for rank in failed[1:]:
            error.add_note(f"rank {rank}: {type(outcomes[rank]).__name__}: {outcomes[rank]}")
        raise error

    def outcomes(self, fn, *args, timeout=None, **kwargs):
        """What each rank returned or raised (RankDiedError, RankTimeoutError if it did neither)."""
        return self._run(fn, args, kwargs, timeout)[0]

    def failures(self, fn, *args, timeout=None, **kwargs):
        """[(rank, what it raised)] in the order of failing."""
        outcomes, failed = self._run(fn, args, kwargs, timeout)
        return [(rank, outcomes[rank]) for rank in failed]

    def _run(self, fn, args, kwargs, timeout):
        if not self._processes:
            self._start()
        job = _ship((fn, args, kwargs))
        failed = True
        try:
            for pipe in self._pipes:
                with contextlib.suppress(OSError):  # it died: collecting says so
                    pipe.send_bytes(job)
            outcomes, failed = self._collect(timeout or self.timeout)
        finally:
            if failed:
                self.kill()
        return outcomes, failed

    def _collect(self, timeout):
        """Outcomes by rank, and the ranks that failed in the order in which they did."""
        outcomes, failed = [None] * self.n, []
        waiting = dict(zip(self._pipes, range(self.n), strict=True))
        deadline = time.monotonic() + timeout
        while waiting:
            ready = connection.wait(waiting, max(0, deadline - time.monotonic()))
            for pipe in ready:
                rank = waiting.pop(pipe)
                outcomes[rank], fine = self._receive(rank, pipe)
                if not fine:
                    failed.append(rank)
                    deadline = min(deadline, time.monotonic() + self.grace)
            if not ready:
                for rank in waiting.values():
                    outcomes[rank] = RankTimeoutError(
                        f"rank {rank} had not finished, it was killed here:\n{self._stack(rank)}"
                    )
                    failed.append(rank)
                break
        return outcomes, failed

    def _receive(self, rank, pipe):
        try:
            kind, payload, text = pickle.loads(pipe.recv_bytes())
        except (EOFError, OSError):
            self._processes[rank].join(GRACE)
            code = self._processes[rank].exitcode
            return RankDiedError(f"rank {rank} died, exit code {code}"), False
        if kind == "returned":
            return payload, True
        error = payload if payload is not None else RuntimeError(text)
        error.add_note(f"raised on rank {rank}:\n{text}")
        return error, False

    def _stack(self, rank):
        """Where a rank stands, from the signal handler that every rank installs."""
        path = self._directory / f"stack{rank}"
        os.kill(self._processes[rank].pid, signal.SIGUSR1)
        until = time.monotonic() + 1
        while not path.stat().st_size and time.monotonic() < until:
            self._processes[rank].join(0.02)
        return path.read_text()

    def _start(self):
        self._directory = Path(tempfile.mkdtemp(prefix="ranks-"))
        port = _free_port()
        for rank in range(self.n):
            here, there = context.Pipe()
            self._pipes.append(here)
            place = (rank, self.n, self.backend, self.limit, str(self._directory), port)
            process = context.Process(target=_rank, args=(there, place), daemon=True)
            with no_main():
                process.start()
            there.close()
            self._processes.append(process)

    def close(self):
        """Let the ranks leave in order, and make sure that they are gone."""
        for pipe in self._pipes:
            with contextlib.suppress(OSError):
                pipe.send_bytes(b"")
        for process in self._processes:
            process.join(GRACE)
        self.kill()

    def kill(self):
        """End all ranks at once."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.join()
            process.close()
        for pipe in self._pipes:
            pipe.close()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
        self._processes, self._pipes, self._directory = [], [], None

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()


def _rank(pipe, place):
    """What a rank's process does: take functions until the pipe closes."""
    rank, n, backend, limit, directory, port = place
    if sys.platform == "linux":
        pr_set_pdeathsig = 1  # a test run that is killed takes its ranks along
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    stack = Path(directory, f"stack{rank}").open("w")  # noqa: SIM115  open for good
    faulthandler.register(signal.SIGUSR1, file=stack)
    os.environ |= {
        "RANK": str(rank),
        "WORLD_SIZE": str(n),
        "LOCAL_RANK": str(rank),
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": str(port),
        "RANKS_DIRECTORY": directory,  # for files that must go when the ranks go
    }
    import torch  # the fork server has loaded it; a parent that only imports this file need not
    import torch.distributed as dist

    torch.set_num_threads(1)
    started = backend is None
    with contextlib.suppress(EOFError):
        while job := pipe.recv_bytes():
            try:
                if not started:
                    store = dist.FileStore(str(Path(directory, "store")), n)
                    dist.init_process_group(
                        backend,
                        store=store,
                        rank=rank,
                        world_size=n,
                        timeout=timedelta(seconds=limit),
                    )
                    started = True
                fn, args, kwargs = pickle.loads(job)
                answer = _ship(("returned", fn(*args, **kwargs), None))
            except BaseException as error:  # noqa: BLE001  SystemExit and KeyboardInterrupt as well
                answer = _ship_error(error)
            pipe.send_bytes(answer)
    if dist.is_initialized():
        dist.destroy_process_group()


def _ship(what):
    """Pickle, with the functions and classes of test modules by value, as ranks lack those."""
    modules = [sys.modules.get(getattr(item, "__module__", "")) for item in _functions(what)]
    modules = [module for module in modules if _is_test(module)]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    packed = io.BytesIO()
    try:
        _Pickler(packed).dump(what)
        return packed.getvalue()
    finally:
        for module in modules:
            if module.__name__ in cloudpickle.list_registry_pickle_by_value():
                cloudpickle.unregister_pickle_by_value(module)


class _Pickler(cloudpickle.Pickler):
    """cloudpickle forgets in which file code stands; errors on the ranks have to say so."""

    def reducer_override(self, obj):
        if isinstance(obj, types.CodeType):
            return marshal.loads, (marshal.dumps(obj),)
        return super().reducer_override(obj)


def _functions(what):
    if isinstance(what, (tuple, list)):
        for item in what:
            yield from _functions(item)
    else:
        yield what


def _is_test(module):
    name = getattr(module, "__name__", "").rpartition(".")[2]
    return name.startswith("test_") or name.endswith("_test") or name == "conftest"


def _ship_error(error):
    text = "".join(traceback.format_exception(error))
    error.__traceback__ = None
    try:
        answer = _ship(("raised", error, text))
        pickle.loads(answer)
    except Exception:  # noqa: BLE001  an exception that cannot travel travels as its text
        answer = _ship(("raised", None, text))
    return answer


@contextlib.contextmanager
def no_main():
    """Keep multiprocessing from importing pytest's main program anew in every rank."""
    main = sys.modules["__main__"]
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    main.__spec__ = None
    if file is not None:
        del main.__file__
    try:
        yield
    finally:
        main.__spec__ = spec
        if file is not None:
            main.__file__ = file


def _free_port():
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return probe.getsockname()[1]
