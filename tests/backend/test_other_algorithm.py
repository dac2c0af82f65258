"""Ranks that differ in nothing but the algorithm: the sentence names the algorithms."""

import pytest
import torch
import torch.distributed as dist
from ranks import RankPool, raised


def choose(names, shm):
    """Each rank makes the same call by an algorithm of its own; what it is told."""
    import os

    import teachdist

    os.environ["TEACHDIST_SHM"] = shm
    group = dist.new_group()
    x = torch.ones(6)
    dist.all_reduce(x, group=group)  # the group's first call is another way through the code
    with teachdist.use(all_reduce=names[dist.get_rank()]):
        return raised(dist.all_reduce, x, group=group)


PAIRS = [("ring", "linear", "linear"), ("doubling", "ring", "ring"), ("direct", "ring", "ring")]


@pytest.mark.parametrize("shm", ["1", "0"])
@pytest.mark.parametrize("names", PAIRS)
def test_the_algorithms_are_named(names, shm):
    with RankPool(3, "teachdist", limit=60) as pool:
        for kind, text in pool.run(choose, names, shm):
            assert kind in ("DistBackendError", "Released")
            assert f"rank 0 is in all_reduce(float32[6], SUM) by {names[0]} at " in text
            assert f"by {names[1]} at " in text
            assert "All ranks of the group must choose the same algorithm" in text


def first_call():
    import teachdist

    options = teachdist.Options(all_reduce=["ring", "linear", "linear"][dist.get_rank()])
    group = dist.new_group(pg_options=options)
    return raised(dist.all_reduce, torch.ones(6), group=group)


def test_in_the_first_call_of_a_group():
    with RankPool(3, "teachdist", limit=60) as pool:
        for _, text in pool.run(first_call):
            assert "rank 0 is in all_reduce(float32[6], SUM) by ring at " in text
            assert "in all_reduce(float32[6], SUM) by linear at " in text
