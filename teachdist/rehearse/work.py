"""Work and its future, where waiting means passing the baton.

A collective's values are there as soon as its last rank has come, but the rank that asked for them
sees them at the time that the prices say. So a Work knows two things: whether it is `over`, and
when that is on the clock of its rank (`until`).

Callbacks of a future are the rank's code, so only the rank's own thread completes it: at its next
switch, or at once if that is who finds the work over.

DistributedDataParallel waits for futures in C++, at the end of backward, without telling Python,
and would hold the baton for ever. But autograd runs what `queue_callback` was given in order, and
the future is asked for before the reducer queues its own end. So a wait of ours goes first.
"""

import contextlib

import torch

from teachdist.backend.work import Work, asked
from teachdist.rehearse.actors import Signal
from teachdist.rehearse.clock import MONOTONIC

_queue_callback = torch.autograd.Variable._execution_engine.queue_callback


class VirtualWork(Work):
    """The handle of one operation of one rank.

    communicator: the rank's membership. words: the call, with its place. subject: what the verdict
    needs to know when the rank waits here, see `verdict.py`.
    """

    def __init__(self, outputs, communicator, words, subject, closing=None):
        super().__init__(outputs)
        self.communicator, self.words, self.subject = communicator, words, subject
        self.rank = communicator.whose
        self.signal = Signal()
        self.began = self.until = 0.0
        self.culprit = None
        self._computed = self.rank.clock.spent["compute"]  # when it was asked for
        self._close = closing
        self._polls = 0
        self.polls = 0  # that were told no, as it was not over
        self.refused = 0  # polls that were told no though yes could have come

    def settle(self, began, until, culprit=None, error=None):
        """It is over: from `began` bytes were under way, `until` on the rank's clock.

        culprit: the rank that came last.
        """
        if self.over:
            return
        self.began, self.until, self.culprit, self.error = began, until, culprit, error
        closing, self._close = self._close, None
        if closing is not None:
            closing()
        self.over = True
        if self.noted is not None:
            self.noted.ended(MONOTONIC + until)
        if self._base is not None:
            self.rank.later(self._complete)
        self.signal.notify()

    finish = None  # see `settle`

    def _complete(self):
        self.rank.horizon = max(self.rank.horizon, self.until)
        self._base.set_result(self.outputs)

    # -- waiting ---------------------------------------------------------------------------

    def wait(self, timeout=None):
        """Pass the baton until done; True, or raises what went wrong."""
        clock = self.rank.clock
        clock.enter()
        try:
            self._wait(timeout.total_seconds() if timeout else None)
            self._reach()
        finally:
            clock.leave()
        self.rank.settle()
        if self.error is not None:
            raise self.error
        return True

    def _wait(self, limit):
        if self.noted is not None:
            self.noted.awaited()
        scheduler = self.communicator.job.scheduler
        patient = limit is None
        seconds = self.communicator.timeout if patient else limit
        done = scheduler.wait(
            self.signal, lambda: self.over, seconds, self.words, patient, self.subject
        )
        if not done:
            self.communicator.gave_up(self, seconds, patient)
        if self.noted is not None and self.source is not None:
            self.noted.source(self.source)

    def _reach(self):
        clock = self.rank.clock
        clock.advance(self.began, "wait", self.words, self.culprit)
        if self.communicator.job.machine.processors is not None:
            # The processors that computed meanwhile had to communicate as well.
            hidden = clock.share(self._computed, self.until - self.began)
            self.until = max(self.until, clock.time) + hidden
            self.began = self.until
        clock.advance(self.until, "transfer", self.words)
        if self.noted is not None:
            self.noted.resumed()

    def is_completed(self):
        """Whether it is over at this time. Who asks in a loop lets time pass, a little by each."""
        orders = self.communicator.job.orders
        over = self._asked() if orders is None else orders.poll(self, self.words)
        if self.noted is not None:
            self.noted.poll(over)
        return over

    def _asked(self):
        clock = self.rank.clock
        now = clock.now()
        if self.over and self.until <= now:
            self.rank.settle()
            return True
        clock.enter(counted=False)
        try:
            self._polls += 1
            pause = min(1e-6 * 1.1**self._polls, 1.0)
            if self.over:
                clock.advance(min(self.until, now + pause), "wait", self.words)
                return self.until <= clock.time
            self.communicator.job.scheduler.sleep(pause)
        finally:
            clock.leave()
        return self.over and self.until <= clock.time

    def over_within(self, seconds):
        """Wait at most so long; whether it is over."""
        return self.communicator.job.scheduler.wait(
            self.signal, lambda: self.over, seconds, self.words
        )

    # -- the future ------------------------------------------------------------------------

    def get_future(self):
        """A torch.futures.Future of the list of output tensors."""
        asked.work = self
        if self._future is not None:
            return self._future
        self._base = torch.futures.Future()
        self._future = self._base.then(self._unwrap)
        if self.over:
            self._complete()
        with contextlib.suppress(RuntimeError):  # not inside backward
            _queue_callback(self._before_the_reducer)
        return self._future

    def _before_the_reducer(self):
        clock = self.rank.clock
        clock.enter()
        try:
            self._wait(None)
            self._reach()
        finally:
            clock.leave()
        self.rank.settle()


def wait_for_future(job, future, original):
    """What `torch.futures.Future.wait` does on a rank's thread."""
    actor = job.scheduler.me()
    rank = actor.rank
    rank.settle()
    if not future.done():
        future.add_done_callback(lambda _: rank.stirred.notify())
        rank.clock.enter()
        try:
            job.scheduler.wait(rank.stirred, future.done, None, "Future.wait()")
        finally:
            rank.clock.leave()
    rank.clock.enter()  # futures do not say which work they came from; at most this late it was
    rank.clock.advance(rank.horizon, "transfer", "Future.wait()")
    rank.clock.leave()
    return original(future)
