"""Traces of all ranks in one place: each rank has recorded only its own side."""

from teachdist.rules import judge
from teachdist.tracing.blame import blame


class Traces(dict):
    """{rank: its trace}, of all ranks of a group."""

    def check(self, rules="nccl"):
        """Whether these calls would hang or differ elsewhere; a `teachdist.rules.Verdict`.

        rules: nccl, nccl-eager, gloo or mpi. Only what was called while the traces were open is
        known, so they should have been open from the group's first call on.
        """
        return judge({rank: trace.log for rank, trace in self.items()}, rules)

    def blame(self):
        """Who kept whom waiting, how long, because of what; a `Blame`, whose text says it."""
        logs = {rank: trace.log for rank, trace in self.items()}
        hosts = {rank: trace.host for rank, trace in self.items()}
        return blame(logs, hosts, {rank: trace.lines for rank, trace in self.items()})


def gather(trace, group=None):
    """`Traces`, {rank: its trace}, on every rank of the group. All must call this, after tracing.

    The keys are the numbers of the ranks in the job.
    """
    import torch.distributed as dist

    group = dist.group.WORLD if group is None else group
    ranks = dist.get_process_group_ranks(group)
    found = [None] * len(ranks)
    dist.all_gather_object(found, trace, group=group)
    return Traces(zip(ranks, found, strict=True))


def by_rank(traces):
    """Traces as {rank: trace}: from that, from a list in order of rank, or from one trace."""
    if isinstance(traces, dict):
        return dict(traces)
    if isinstance(traces, (list, tuple)):
        return dict(enumerate(traces))
    calls = getattr(traces, "calls", [])
    return {calls[0].rank if calls else 0: traces}
