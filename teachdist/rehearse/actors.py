"""Threads of ranks, what they wait for, and how they are told.

A thread that waits hangs on a `Signal`; whoever makes true what it waits for notifies the signal,
and the thread looks again when it gets the baton. What is heard has a time: it can't have happened
later, on the clock of who did it, than it is heard.
"""

import _thread


class Signal:
    """Something that threads wait for. Who makes it true calls `notify`."""

    __slots__ = ("waiting",)

    def __init__(self):
        self.waiting = []

    def notify(self):
        """Let those who wait here look again; it is not earlier there than here."""
        waiting, self.waiting = self.waiting, []
        for actor in waiting:
            actor.wait.heard(actor.scheduler.running)
            actor.scheduler.ready(actor)


class Actor:
    """One thread of one rank; `rank` is a `ranks.Rank`.

    wait: what it waits for, as a `Waiting`; None while it can run. killed: an exception that it
    raises as soon as it runs again.
    """

    def __init__(self, scheduler, rank, name):
        self.scheduler, self.rank, self.name = scheduler, rank, name
        self.baton = _thread.allocate_lock()  # threading's may be one that waits for batons
        self.baton.acquire()
        self.thread = None
        self.wait = None
        self.killed = None
        self.queued = False
        self.over = False
        self.ended = Signal()


class Waiting:
    """Why a thread waits. what: words. patient: its end by time is only a safety net.

    rang: whether its alarm has ended it. until: when that would be. news: the latest time at which
    somebody notified it, and which rank that was.
    """

    __slots__ = ("news", "patient", "rang", "subject", "until", "what")

    def __init__(self, what, patient, subject, until):
        self.what, self.patient, self.subject, self.until = what, patient, subject, until
        self.rang, self.news = False, (0.0, None)

    def heard(self, actor):
        """Something happened that it waits for, by the thread that runs."""
        if actor is not None and actor.rank.clock.time > self.news[0]:
            self.news = actor.rank.clock.time, actor.rank.number
