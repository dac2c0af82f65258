"""A root that is not in the group: torch says so, but not what to write instead.

`src=` and `dst=` count the ranks of the whole job, `group_src=` and `group_dst=` those of the
group; in a group the two differ, and torch's error names neither the ranks of the group nor the
other spelling. So its check is given better words, for the groups of this backend.
"""

import torch.distributed as dist

_torchs = dist.distributed_c10d


def patch_spelling():
    """Give the check its words; once per process."""
    old = _torchs.get_group_rank
    if hasattr(old, "before_teachdist"):
        return

    def get_group_rank(group, global_rank):
        try:
            return old(group, global_rank)
        except ValueError as error:
            ranks = _ranks_of_ours(group)
            if not ranks:
                raise
            raise ValueError(
                f"rank {global_rank} is not in this group, whose ranks are {ranks}. src= and dst= "
                f"count the ranks of the whole job: for the first rank of the group write "
                f"src={ranks[0]}, or group_src=0 (dst={ranks[0]}, or group_dst=0)."
            ) from error

    get_group_rank.__doc__ = old.__doc__
    get_group_rank.before_teachdist = old
    _torchs.get_group_rank = get_group_rank


def _ranks_of_ours(group):
    """The ranks of a group of this backend, by their numbers in the job; else None."""
    ranks = _torchs._world.pg_group_ranks.get(group)
    if ranks is None or "teachdist" not in _torchs._world.pg_map.get(group, ("",))[0]:
        return None
    return sorted(ranks)
