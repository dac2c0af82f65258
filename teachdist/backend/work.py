"""Work: the handle of a collective that may still be under way.

torch lets two methods of a Python Work be reached, `wait` and `get_future`; the rest of the
documented interface is answered by torch's own holder object, wrongly. `patch_holder` repairs
that: the holder does forward `get_future`, and on that way the real Work can be found.

Futures have traps of their own. `Future.set_exception` marks only the Python wrapper, C++ sees
success (DistributedDataParallel then reads missing tensors and crashes), so a failure is raised
inside a `then`. And callbacks run in the thread that completes the future and may wait for
another collective, so futures are never completed by the thread that executes collectives, but
by one that does nothing else (`_Completer`).
"""

import queue
import threading

import torch
import torch.distributed as dist

from teachdist.links.waiting import TICK

_asked = threading.local()


class Work(dist.Work):
    """A collective's handle. `outputs` is what its future will hold: a list of tensors."""

    def __init__(self, outputs):
        super().__init__()
        self.outputs = outputs
        self.error = None
        self._done = threading.Event()
        self._future = None
        self._base = None
        self._lock = threading.Lock()
        self.source = None

    def finish(self, error=None):
        """Settle: with `error` if the collective failed."""
        with self._lock:
            self.error = error
            self._done.set()
            base = self._base
        if base is not None:
            _completer.complete(base, self)

    def wait(self, timeout=None):
        """Block until done; True, or raises what went wrong. timedelta(0) means no limit."""
        limit = timeout.total_seconds() if timeout else None
        self._block(limit)
        if self.error is not None:
            raise self.error
        return True

    def _block(self, limit):
        waited = 0.0
        while not self._done.wait(TICK if limit is None else min(TICK, limit)):
            waited += TICK
            if limit is not None and waited >= limit:
                raise dist.DistBackendError(
                    f"Work.wait: not done within {limit:g} s; it goes on, wait again to see its end"
                )

    def get_future(self):
        """A torch.futures.Future of the list of output tensors."""
        _asked.work = self
        with self._lock:
            if self._future is None:
                self._base = torch.futures.Future()
                self._future = self._base.then(self._unwrap)
                done = self._done.is_set()
            else:
                done = False
        if done:
            self._base.set_result(self.outputs)
        return self._future

    def _unwrap(self, base):
        if self.error is not None:
            raise self.error
        return base.value()

    def is_completed(self):
        """Whether the collective is over, well or badly."""
        return self._done.is_set()

    def is_success(self):
        """Whether the collective is over and went well."""
        return self._done.is_set() and self.error is None

    def exception(self):
        """What went wrong, or None."""
        return self.error

    def result(self):
        """The output tensors; raises before the collective is over."""
        if not self._done.is_set():
            raise RuntimeError("Work.result: the collective is not over yet; call wait() first")
        if self.error is not None:
            raise self.error
        return self.outputs

    def source_rank(self):
        """For a receive: the rank that sent."""
        if self.source is None:
            raise RuntimeError("Work.source_rank: only a finished receive has a source")
        return self.source

    def synchronize(self):
        """On the CPU the same as wait."""
        self.wait()


class MailWork(Work):
    """The handle of a send or a receive: whoever waits drives it."""

    def __init__(self, outputs, drive):
        super().__init__(outputs)
        self._drive = drive

    def wait(self, timeout=None):
        """Block until done; True, or raises what went wrong."""
        self._drive(timeout.total_seconds() if timeout else None)
        return super().wait(timeout)


class _Completer:
    """Completes futures on a thread that executes nothing else; starts when first needed."""

    def __init__(self):
        self._queue = queue.SimpleQueue()
        self._thread = None
        self._lock = threading.Lock()

    def complete(self, base, work):
        self._queue.put((base, work))
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._run, name="teachdist-futures", daemon=True
                )
                self._thread.start()

    def _run(self):
        while True:
            base, work = self._queue.get()
            base.set_result(work.outputs)
            del base, work


_completer = _Completer()


def _real(holder):
    """The Work behind the object that torch hands to the caller, or None."""
    if isinstance(holder, Work):
        return holder
    _asked.work = None
    try:
        _OLD["get_future"](holder)
    except (RuntimeError, NotImplementedError):
        return None
    return _asked.work


_OLD = {}


def patch_holder():
    """Make torch's holder answer as the Work inside it does; once per process."""
    if _OLD:
        return
    _OLD["get_future"] = dist.Work.get_future
    names = ("is_completed", "is_success", "exception", "result", "source_rank", "_source_rank")
    for name in names:
        old = getattr(dist.Work, name, None)
        if old is None:
            continue
        _OLD[name] = old
        setattr(dist.Work, name, _forward(name, old))


def _forward(name, old):
    def method(self, *args):
        if isinstance(self, Work):
            return old(self, *args)
        work = _real(self)
        if work is None:
            return old(self, *args)
        return getattr(work, name.lstrip("_"))(*args)

    method.__name__ = name
    method.__doc__ = old.__doc__
    return method


class Worker:
    """Runs the asynchronous collectives of a group, one after the other, on a lazy thread."""

    def __init__(self, name):
        self._name = name
        self._queue = queue.SimpleQueue()
        self._thread = None
        self._open = 0
        self._idle = threading.Condition()

    def submit(self, job):
        """Have job() run after those before it."""
        with self._idle:
            self._open += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
        self._queue.put(job)

    def drain(self):
        """Wait until everything submitted is over (each job has a deadline of its own)."""
        if self._open:
            with self._idle:
                while self._open:
                    self._idle.wait(TICK)

    def stop(self):
        """End the thread after what is queued."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._queue.put(None)
            self._thread.join(timeout=10)
            self._thread = None

    def _run(self):
        while (job := self._queue.get()) is not None:
            try:
                job()
            finally:
                del job
                with self._idle:
                    self._open -= 1
                    self._idle.notify_all()
