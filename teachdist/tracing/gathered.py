"""Traces of all ranks in one place: each rank has recorded only its own side."""


def gather(trace, group=None):
    """{rank: its trace} on every rank of the group. All its ranks must call this, after tracing.

    The keys are the numbers of the ranks in the job.
    """
    import torch.distributed as dist

    group = dist.group.WORLD if group is None else group
    ranks = dist.get_process_group_ranks(group)
    found = [None] * len(ranks)
    dist.all_gather_object(found, trace, group=group)
    return dict(zip(ranks, found, strict=True))


def by_rank(traces):
    """Traces as {rank: trace}: from that, from a list in order of rank, or from one trace."""
    if isinstance(traces, dict):
        return dict(traces)
    if isinstance(traces, (list, tuple)):
        return dict(enumerate(traces))
    calls = getattr(traces, "calls", [])
    return {calls[0].rank if calls else 0: traces}
