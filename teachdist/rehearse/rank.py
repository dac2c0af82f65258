"""A virtual rank: a number, a clock, the state that a process would have, and its groups."""

from collections import deque

from teachdist.rehearse.actors import Signal
from teachdist.rehearse.clock import MONOTONIC
from teachdist.rehearse.state import State
from teachdist.rules import Log


class Rank:
    """Rank `number` of a rehearsal.

    due: things that its own thread has to do next time it runs (completing futures: their
    callbacks are the rank's code); stirred: notified when something is. communicators: its
    memberships in groups, in the order of joining. horizon: when the latest work is over that
    completed a future.
    """

    def __init__(self, number, clock, room):
        self.number, self.clock, self.room = number, clock, room
        self.state = State()
        self.due = deque()
        self.stirred = Signal()
        self.communicators = []
        self.result = None
        self.error = None
        self.actor = None  # its first thread
        self.over = False
        self.horizon = 0.0  # when the latest work is over whose future was completed
        self.log = Log(began=MONOTONIC)  # what it called and waited for
        self.counts = {}  # group name -> backends made of it

    @property
    def running(self):
        """Whether it has neither returned nor failed."""
        return not self.over

    def later(self, job):
        """Have job() run in the rank's own thread."""
        self.due.append(job)
        self.stirred.notify()

    def settle(self):
        """Do what is due; in the rank's own thread."""
        while self.due:
            self.due.popleft()()

    def __repr__(self):
        return f"rank {self.number}"
