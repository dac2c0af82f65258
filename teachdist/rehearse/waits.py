"""Waits and time in the ranks' own code: locks, conditions, queues, threads, sleep, clocks.

Python's conditions, events, semaphores, barriers and queues are written in Python, on one kind of
lock. So one lock that passes the baton when it must wait is enough for all of them. It stands on a
real one, so it goes on working in other threads and after the rehearsal.

A thread that a rank starts becomes one more thread of that rank: it runs when it gets the baton,
with that rank's groups, random numbers and clock.
"""

import _thread
import queue
import threading
import time

import torch

from teachdist.rehearse.actors import Signal
from teachdist.rehearse.clock import MONOTONIC
from teachdist.rehearse.work import wait_for_future

_allocate = _thread.allocate_lock


class Lock:
    """A lock for which a rank's thread waits by passing the baton."""

    def __init__(self, scheduler):
        self._real = _allocate()
        self._scheduler = scheduler
        self._freed = Signal()

    def acquire(self, blocking=True, timeout=-1):
        """Take it, waiting up to `timeout` virtual seconds (-1: for ever); whether it was taken."""
        scheduler = self._scheduler
        me = scheduler.me()
        if me is None:
            return self._real.acquire(blocking, timeout)
        if self._real.acquire(False):
            return True
        if not blocking:
            return False
        clock = me.rank.clock
        clock.enter()
        try:
            limit = None if timeout < 0 else timeout
            return scheduler.wait(
                self._freed, lambda: self._real.acquire(False), limit, "a lock", False, (self,)
            )
        finally:
            clock.leave()

    def release(self):
        """Give it back; whoever waits for it may go on."""
        self._real.release()
        if self._freed.waiting:
            self._freed.notify()

    def locked(self):
        """Whether somebody has it."""
        return self._real.locked()

    def _at_fork_reinit(self):
        self._real._at_fork_reinit()

    def __enter__(self):
        self.acquire()
        return self

    def __exit__(self, *exc_info):
        self.release()


class _Started:
    """What a new thread says before it waits for the baton: an event that is waited for really."""

    def __init__(self):
        self._set = False
        self._gate = _allocate()
        self._gate.acquire()

    def is_set(self):
        return self._set

    def set(self):
        self._set = True
        self._gate.release()

    def wait(self):
        with self._gate:
            return True


def patch_waits(patches, job):
    """Have everything that waits or tells the time go by the rehearsal's scheduler and clocks."""
    scheduler = job.scheduler

    def lock(_):
        return lambda: Lock(scheduler)

    patches.for_ranks(scheduler, threading, "Lock", lock)
    patches.for_ranks(scheduler, threading, "_allocate_lock", lock)
    patches.for_ranks(scheduler, threading, "RLock", lambda _: threading._PyRLock)
    patches.for_ranks(scheduler, queue, "SimpleQueue", lambda _: queue._PySimpleQueue)
    _patch_threads(patches, scheduler)
    _patch_time(patches, scheduler)
    _patch_futures(patches, job)


def _patch_threads(patches, scheduler):
    def starting(original):
        def start(thread):
            thread._started = _Started()
            actor = scheduler.adopt(scheduler.me().rank, thread, lambda: original(thread))
            thread._teachdist_actor = actor

        return start

    def joining(original):
        def join(thread, timeout=None):
            actor = getattr(thread, "_teachdist_actor", None)
            if actor is not None and not actor.over:
                clock = scheduler.me().rank.clock
                clock.enter()
                words = f"{thread.name}.join()"
                scheduler.wait(actor.ended, lambda: actor.over, timeout, words)
                clock.leave()
                if not actor.over:
                    return
            original(thread)

        return join

    patches.for_ranks(scheduler, threading.Thread, "start", starting)
    patches.for_ranks(scheduler, threading.Thread, "join", joining)


def _patch_time(patches, scheduler):
    began = time.time()

    def virtual(base, unit=1):
        def now():
            seconds = base + scheduler.running.rank.clock.now()
            return seconds if unit == 1 else int(seconds * unit)

        return lambda _: now

    def sleep(_):
        def sleeping(seconds):
            if seconds < 0:
                raise ValueError("sleep length must be non-negative")
            clock = scheduler.running.rank.clock
            clock.enter()
            try:
                scheduler.sleep(seconds)
            finally:
                clock.leave()

        return sleeping

    patches.for_ranks(scheduler, time, "sleep", sleep)
    patches.for_ranks(scheduler, time, "time", virtual(began))
    patches.for_ranks(scheduler, time, "time_ns", virtual(began, 10**9))
    for name in ("monotonic", "perf_counter"):
        patches.for_ranks(scheduler, time, name, virtual(MONOTONIC))
        patches.for_ranks(scheduler, time, f"{name}_ns", virtual(MONOTONIC, 10**9))
    patches.for_ranks(scheduler, threading, "_time", virtual(MONOTONIC))
    patches.for_ranks(scheduler, queue, "time", virtual(MONOTONIC))


def _patch_futures(patches, job):
    future = torch._C.Future  # the reducer hands this one out, not its Python child
    patches.for_ranks(
        job.scheduler, future, "wait", lambda original: lambda f: wait_for_future(job, f, original)
    )

    def done(original):
        def settled(future):
            job.scheduler.running.rank.settle()
            return original(future)

        return settled

    patches.for_ranks(job.scheduler, future, "done", done)
    patches.for_ranks(
        job.scheduler, torch.futures, "wait_all", lambda _: lambda fs: [f.wait() for f in fs]
    )
