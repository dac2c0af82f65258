"""all_to_all whose splits do not fit: the pair that disagrees, and all that was said."""

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from ranks import raised

from teachdist.diagnose.splits import disagreement, told
from teachdist.testing.pool import RankPool

SENDS = [[1, 1, 1], [2, 1, 1], [1, 1, 1]]
RECEIVES = [[1, 0, 1], [1, 1, 1], [1, 1, 1]]


def single(rank):
    sends, receives = SENDS[rank], RECEIVES[rank]
    inputs, out = torch.ones(sum(sends)), torch.zeros(sum(receives))
    dist.all_to_all_single(out, inputs, receives, sends)


def in_lists(rank):
    inputs = [torch.ones(n) for n in SENDS[rank]]
    dist.all_to_all([torch.zeros(n) for n in RECEIVES[rank]], inputs)


def functionally(rank):
    out = functional.all_to_all_single(
        torch.ones(sum(SENDS[rank])), RECEIVES[rank], SENDS[rank], dist.group.WORLD
    )
    functional.wait_tensor(out)


def on_one_rank_only(rank):
    splits = [1, 2, 3] if rank == 1 else None
    dist.all_to_all_single(torch.zeros(6), torch.ones(6), splits, splits)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (single, "rank 1 sends 2 rows to rank 0, which expects 0 from it"),
        (in_lists, "rank 1 sends 2 elements to rank 0, which expects 0 from it"),
        (functionally, "rank 1 sends 2 rows to rank 0, which expects 0 from it"),
        (on_one_rank_only, "rank 0 sends 2 rows to rank 1, which expects 1 from it"),
    ],
)
def test_the_pair_is_named(body, words):
    def job():
        return raised(body, dist.get_rank())

    with RankPool(3, "teachdist") as pool:
        told_on = [text for one in pool.run(job) if one is not None for text in [one[1]]]
    assert any(f"the splits do not fit: {words}" in text for text in told_on)
    assert any("to 0  to 1  to 2  from 0  from 1  from 2" in text for text in told_on)


def test_equal_splits_are_not_told():
    assert told([2, 2], [2, 2]) == ()
    assert told([2, 1], [2, 2]) == ("sends=[2, 1]", "receives=[2, 2]")


def test_another_difference_is_none_of_the_splits():
    same = "all_to_all_single(float32[4]) at a.py:1"
    assert disagreement({0: same, 1: same}) == ""
    assert disagreement({0: same, 1: "barrier() at a.py:2"}) == ""
    assert disagreement({}) == ""
