"""What a rehearsal has found: results, times, and where they went."""


class Rehearsal:
    """The answer of `teachdist.rehearse`.

    results: what the function returned, by rank. seconds: predicted, until the last rank was done.
    clocks: the `Clock` of each rank, with what its time was spent on.
    """

    def __init__(self, job):
        self._job = job
        self.ranks = len(job.ranks)
        self.results = [rank.result for rank in job.ranks]
        self.clocks = [rank.clock for rank in job.ranks]
        self.seconds = max(rank.clock.time for rank in job.ranks)

    @property
    def recording(self):
        """How long each stretch of computing took; give it as `clock=` to have the same again."""
        return self._job.recording

    def __repr__(self):
        return f"{self.ranks} ranks, {self.seconds:.6g} s predicted"
