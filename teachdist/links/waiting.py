"""Waiting with a deadline, an ear for Ctrl-C, and an eye on the others.

Every wait of the package is cut into ticks of at most `TICK` seconds. The first ticks cost
nothing: a wait that is over sooner never runs a line of this. After a tick the rank looks
around (`watch`): has another rank failed, is the awaited process still there, is it time to say
for whom this rank waits? Ending a wait is always an exception, never a return.
"""

import select
import time

from teachdist.links.errors import TimedOut

TICK = 0.2


class Deadline:
    """How long one call may wait, and whom to ask in the meantime.

    timeout: seconds until `TimedOut`.
    watch: called as watch(ranks, waited) after each tick with the ranks waited for and the
        seconds waited so far; it may raise to end the wait, and may log.
    what: names the call in the time-out's message.
    watcher: makes the watch when the first tick has passed; most calls never need one.
    """

    def __init__(self, timeout, watch=None, what="this call", watcher=None):
        self.timeout = timeout
        self.watch = watch
        self.what = what
        self.watcher = watcher
        self.began = time.monotonic()

    @property
    def waited(self):
        """Seconds since the call began."""
        return time.monotonic() - self.began

    def tick(self):
        """Seconds to block now, at least 0."""
        return max(0.0, min(TICK, self.timeout - self.waited))

    def over(self, ranks):
        """To be called when a tick passed and nothing came from `ranks`: raises or returns."""
        ranks = sorted(ranks)
        waited = self.waited
        if self.watch is None and self.watcher is not None:
            self.watch = self.watcher()
        if self.watch is not None:
            self.watch(ranks, waited)
        if waited >= self.timeout:
            limit = f"{self.timeout:.0f}" if self.timeout >= 10 else f"{self.timeout:.2g}"
            raise TimedOut(f"{self.what}: nothing came within the timeout of {limit} s", ranks)


def wait_for(sock, event, deadline, peer):
    """Wait until a socket that `peer` serves is ready for an event of poll."""
    poll = select.poll()
    poll.register(sock, event)
    while not poll.poll(deadline.tick() * 1000):
        deadline.over([peer])
