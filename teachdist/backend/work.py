"""Work: the handle of a collective that may still be under way.

torch lets two methods of a Python Work be reached, `wait` and `get_future`; `torch_patches.py`
repairs the rest.

Futures have traps of their own. `Future.set_exception` marks only the Python wrapper, C++ sees
success (DistributedDataParallel then reads missing tensors and crashes), so a failure is raised
inside a `then`. And callbacks run in the thread that completes the future and may wait for
another collective or its future, so futures are never completed by the thread that executes
collectives, nor behind a callback that is still running (`_Completer`).
"""

import os
import queue
import threading

import torch
import torch.distributed as dist

from teachdist.links.waiting import TICK

# What `get_future` was last called on, in this thread: see `torch_patches.py`.
asked = threading.local()


class Work(dist.Work):
    """A collective's handle. `outputs` is what its future will hold: a list of tensors.

    closing: called when the collective is over, before anybody is told (the profiler's event).
    poisoned: poison over the outputs, lifted for whoever learns that the work is over.
    noted: what a trace remembers of it, which wants to know who waits for it.
    """

    poisoned = None
    noted = None
    error = None
    source = None
    over = False
    _waited_for = None  # an event, made by the first who must block
    _future = None
    _base = None

    def __init__(self, outputs, closing=None):
        super().__init__()
        self.outputs = outputs
        self._closing = closing
        self._lock = threading.Lock()

    def finish(self, error=None):
        """Settle: with `error` if the collective failed. Only the first call counts."""
        closing, self._closing = self._closing, None
        if closing is not None:
            _completer.do_and_wait(closing)
        with self._lock:
            if self.over:
                return
            self.error = error
            self.over = True
            if self.noted is not None:
                self.noted.ended()
            base = self._base
            if self._waited_for is not None:
                self._waited_for.set()
        if base is not None:
            _completer.do(lambda: base.set_result(self.outputs))

    def wait(self, timeout=None):
        """Block until done; True, or raises what went wrong. timedelta(0) means no limit."""
        if self.noted is not None:
            self.noted.awaited()
        if not self.over:
            self._block(timeout.total_seconds() if timeout else None)
        if self.noted is not None:
            self.noted.resumed()
            if self.source is not None:
                self.noted.source(self.source)
        self._lift()
        if self.error is not None:
            raise self.error
        return True

    def _lift(self):
        if self.poisoned is not None:
            self.poisoned.lift()

    def over_within(self, seconds):
        """Block until done, at most so long; whether it is."""
        with self._lock:
            if self._waited_for is None:
                self._waited_for = threading.Event()
            if self.over:
                self._waited_for.set()
        return self._waited_for.wait(seconds)

    def _block(self, limit):
        waited = 0.0
        while not self.over_within(TICK if limit is None else min(TICK, limit - waited)):
            waited += TICK
            if limit is not None and waited >= limit:
                raise dist.DistBackendError(
                    f"Work.wait: not done within {limit:g} s; it goes on, wait again to see its end"
                )

    def get_future(self):
        """A torch.futures.Future of the list of output tensors."""
        asked.work = self
        with self._lock:
            if self._future is not None:
                return self._future
            devices = sorted({t.device for t in self.outputs if t.device.type != "cpu"}, key=str)
            base = self._base = torch.futures.Future(devices=devices or None)
            self._future = base.then(self._unwrap)
            done = self.over
        if done:
            base.set_result(self.outputs)
        return self._future

    def _unwrap(self, base):
        self._lift()
        if self.error is not None:
            raise self.error
        return base.value()

    def is_completed(self):
        """Whether the collective is over, well or badly."""
        if self.noted is not None:
            self.noted.poll(self.over)
        if self.over:
            self._lift()
            return True
        return False

    def is_success(self):
        """Whether the collective is over and went well."""
        return self.over and self.error is None

    def exception(self):
        """What went wrong, or None."""
        return self.error

    def result(self):
        """The output tensors; raises before the collective is over."""
        if not self.over:
            raise RuntimeError("Work.result: the collective is not over yet; call wait() first")
        if self.error is not None:
            raise self.error
        return self.outputs

    def source_rank(self):
        """For a receive: the rank in the group that sent."""
        if self.source is None:
            raise RuntimeError("Work.source_rank: only a finished receive has a source")
        return self.source

    def synchronize(self):
        """Wait, as the results are in host memory; on a GPU they are copied there by then."""
        self.wait()

    def block_current_stream(self):
        """Have what is queued next on the current stream see the result: by waiting here."""
        self.wait()

    def get_future_result(self):
        """A torch.futures.Future of an int, the number of a WorkResult: 0 is success."""
        return self.get_future().then(_result_number)


def _result_number(future):
    try:
        future.value()
    except RuntimeError:
        return 3  # COMM_ERROR
    return 0  # SUCCESS


class _Done(Work):
    """The handle of every call that was over before it was returned."""

    def wait(self, timeout=None):
        """Nothing to wait for."""
        return True


DONE = _Done([])
DONE.finish()


def done(outputs):
    """The handle of what is over already; `outputs` is what its future holds."""
    work = Work(outputs)
    work.over = True
    return work


class AllWorks(Work):
    """One handle for several operations: over when all are, failed when one is."""

    def __init__(self, works):
        super().__init__([t for work in works for t in work.outputs])
        self._works = works

    def wait(self, timeout=None):
        """Block until all are done; True, or raises what went wrong first."""
        if self.noted is not None:
            self.noted.awaited()
        for work in self._works:
            work.wait(timeout)
        self.finish()
        if self.noted is not None:
            self.noted.resumed()
        return True

    def is_completed(self):
        """Whether all operations are over."""
        return all(work.is_completed() for work in self._works)

    def is_success(self):
        """Whether all operations went well."""
        return all(work.is_success() for work in self._works)

    def exception(self):
        """What went wrong first, or None."""
        return next((work.error for work in self._works if work.error is not None), None)

    def result(self):
        """The output tensors of all operations."""
        return [t for work in self._works for t in work.result()]

    def get_future(self):
        """A future of all output tensors."""
        asked.work = self
        if self._future is None:
            both = torch.futures.collect_all([work.get_future() for work in self._works])
            self._future = both.then(self._gathered)
        return self._future

    def _gathered(self, futures):
        return [t for future in futures.value() for t in future.value()]


class _Completer:
    """Completes futures on threads that execute nothing else: usually one.

    A callback may wait for another future, which must be completed meanwhile. So no job queues
    behind one that is still running: another thread takes it.
    """

    def __init__(self):
        self._queue = queue.SimpleQueue()
        self._free = 0  # threads that have nothing to do, less the jobs that wait for one
        self._here = threading.local()
        self._lock = threading.Lock()

    def do(self, job):
        """Have job() run on a thread; threads start when first needed."""
        with self._lock:
            self._free -= 1
            if self._free < 0:
                self._free += 1
                name = "teachdist-futures"
                threading.Thread(target=self._run, name=name, daemon=True).start()
        self._queue.put(job)

    def do_and_wait(self, job):
        """Have job() run on a thread and wait for its end; on such a thread just run it."""
        if getattr(self._here, "mine", False):
            job()
            return
        done = threading.Event()

        def both():
            job()
            done.set()

        self.do(both)
        done.wait()

    def _run(self):
        self._here.mine = True
        while True:
            job = self._queue.get()
            job()
            del job
            with self._lock:
                self._free += 1


_completer = _Completer()
os.register_at_fork(after_in_child=_completer.__init__)
