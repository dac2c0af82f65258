"""What a rehearsal has found: results, times, and where they went."""

from teachdist.rehearse.summary import summary
from teachdist.rehearse.timeline import Timeline
from teachdist.rules import judge
from teachdist.tracing.blame import blame


class Rehearsal:
    """The answer of `teachdist.rehearse`; its text is the summary.

    results: what the function returned, by rank. seconds: predicted, until the last rank was done.
    clocks: the `Clock` of each rank, with what its time was spent on. logs: {rank: the Log of what
    it called}.
    """

    def __init__(self, job):
        self.results = [rank.result for rank in job.ranks]
        self.clocks = [rank.clock for rank in job.ranks]
        self.seconds = max(clock.time for clock in self.clocks)
        self.recording = job.recording
        self.summary = summary(job)
        self._calls = job.calls
        self.orders = job.orders
        self.logs = {rank.number: rank.log for rank in job.ranks}

    def check(self, rules="nccl"):
        """Whether the same calls would hang or differ elsewhere; a `teachdist.rules.Verdict`.

        rules: nccl, nccl-eager, gloo or mpi.
        """
        return judge(self.logs, rules)

    def blame(self):
        """Who kept whom waiting, how long, because of what; a `Blame`, whose text says it."""
        return blame(self.logs)

    def timeline(self):
        """What each rank did when: a picture in a notebook; `.save(path)` is for Perfetto."""
        return Timeline(self.clocks, self._calls)

    def __repr__(self):
        return self.summary
