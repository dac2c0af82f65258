"""A watchdog over the thread that has the baton."""

import ctypes
import time

from teachdist.rehearse.errors import Stopped
from teachdist.rehearse.verdict import standing


class Watchdog:
    """Sees when the running thread stands still without having passed the baton.

    That is a wait which the rehearsal does not know of: a lock taken in C++, a socket, a process.
    """

    PATIENCE = 20.0

    def __init__(self, scheduler):
        self._scheduler = scheduler
        self._seen = (None, None, 0.0)

    def look(self):
        """Called now and then by the thread that waits for all."""
        actor = self._scheduler.running
        if actor is None or actor.thread.ident is None:
            return
        state = actor, self._scheduler.switches, _cpu(actor.thread)
        now = time.monotonic()
        if state[:2] != self._seen[:2] or state[2] > self._seen[2] + 0.01:
            self._seen, self._since = state, now
        elif now - self._since > self.PATIENCE:
            self._since = now
            standing(actor, self.PATIENCE)

    def interrupt(self):
        """Raise KeyboardInterrupt in the thread that runs."""
        actor = self._scheduler.running
        if actor is not None and not actor.over and actor.thread.ident is not None:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(actor.thread.ident), ctypes.py_object(Stopped)
            )


def _cpu(thread):
    """CPU seconds of a thread so far."""
    try:
        return time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
    except OSError:  # it has just ended
        return 0.0
