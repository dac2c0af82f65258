"""A group's meetings: how the calls of its ranks find each other, and how long they take.

Collectives match by order: the n-th call of each rank is one meeting. Ranks come when they come;
the last one computes the values for all (`values.py`), and every rank's call is over at

    the latest time at which a rank came  +  the price of the collective

A group's collectives follow each other, as on a stream of their own: the next begins when this one
is over, while its ranks compute on. Calls that do not fit together are not looked at before all
have come, so that the sentence can name them all.
"""

from teachdist.rehearse import traced
from teachdist.rehearse.values import carry_out


class Arrival:
    """One rank's part in a meeting. time: when it came, on its own clock."""

    __slots__ = ("call", "entry", "time", "tracers", "work")

    def __init__(self, call, work, entry, time, tracers=()):
        self.call, self.work, self.entry, self.time = call, work, entry, time
        self.tracers = list(tracers)


class Group:
    """What all communicators of a group share. ranks: their numbers in the job."""

    def __init__(self, job, key, ranks):
        self.job, self.key, self.ranks = job, key, tuple(ranks)
        self.size = len(self.ranks)
        self.communicators = {}
        self.meetings = {}
        self.free = 0.0  # when the last collective is over
        self.rolls = {}  # monitored barriers
        self.desks = {}  # rank -> its posted receives and unexpected messages
        self.title = ""  # its description, once torch has registered it
        self.hosts = tuple(job.machine.host(rank) for rank in self.ranks)

    def come(self, number, rank, arrival):
        """Rank `rank` of the group comes to meeting `number`; the last one carries it out."""
        meeting = self.meetings.setdefault(number, {})
        meeting[rank] = arrival
        if len(meeting) == self.size:
            del self.meetings[number]
            self._carry_out(number, [meeting[rank] for rank in range(self.size)])

    def recover(self):
        """All communicators forget what was under way, and count on from the same number."""
        self.meetings.clear()
        self.desks.clear()
        self.rolls.clear()
        number = max(
            (communicator.sequence for communicator in self.communicators.values()), default=0
        )
        for communicator in self.communicators.values():
            communicator.sequence, communicator.broken, communicator.rolls = number, None, 0
            communicator.history.clear()
            communicator.last = None

    def _carry_out(self, number, arrivals):
        entries = [arrival.entry for arrival in arrivals]
        if len({entry.fingerprint for entry in entries}) > 1 or len({e.how for e in entries}) > 1:
            error = self.job.failures.mismatch(self, number, entries)
            for arrival in arrivals:
                arrival.work.settle(0.0, 0.0, None, error)
            return
        calls = [arrival.call for arrival in arrivals]
        error = None
        if self.job.values:
            try:
                carry_out(calls, self.ranks, entries[0].how, self.hosts)
            except Exception as failed:  # noqa: BLE001  each rank's call ends with it
                error = failed
        last = max(range(self.size), key=lambda rank: (arrivals[rank].time, rank))
        began = max(arrivals[last].time, self.free)
        culprit = self.ranks[last] if arrivals[last].time >= self.free else None
        price = self.job.prices.collective(calls[0], entries[0].how, self)
        self.free = until = began + price
        self.job.record(calls[0], entries[last], self, began, until)
        if any(arrival.tracers for arrival in arrivals):
            name = self.job.prices.algorithm(calls[0], entries[0].how, self)
            traced.keep(self, number, arrivals, name, began, until)
        for arrival in arrivals:
            arrival.work.settle(began, until, culprit, error)
