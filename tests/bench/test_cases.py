"""Each case checks its own answer: right on every rank, and wrong answers are noticed."""

import pytest
import torch
import torch.distributed as dist
from ranks import BACKENDS, shared_pool

from teachdist.bench.cases import CASES, expect


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("size", [2, 3])
def test_all_cases_are_right(backend, size):
    def job():
        rank, size = dist.get_rank(), dist.get_world_size()
        for make in CASES.values():
            for n in (1, 1000):
                case = make(n, rank, size)
                case.fresh()
                case.call(dist.group.WORLD)
                case.check()
                if case.alone is not None:
                    case.alone()

    shared_pool(size, backend).run(job)


@pytest.mark.parametrize("op", [op for op in CASES if op != "barrier"])
def test_a_call_that_does_nothing_is_noticed_by_some_rank(op):
    noticed = []
    for rank in range(2):
        case = CASES[op](1000, rank, 2)
        case.fresh()
        try:
            case.check()
        except AssertionError as error:
            noticed.append(str(error))
    assert noticed
    assert "expected" in noticed[0]


def test_expect():
    expect(torch.ones(3), 1)
    with pytest.raises(AssertionError, match=r"expected 1 everywhere, got \[1.0, 2.0\]"):
        expect(torch.tensor([1.0, 2.0]), 1)


@pytest.mark.parametrize(
    ("op", "share"), [("all_reduce", 1.5), ("broadcast", 1), ("all_gather", 0.75), ("p2p", 2)]
)
def test_what_each_rank_must_move(op, share):
    """Of 4 ranks: the factors by which nccl-tests turn times into bandwidth."""
    assert CASES[op](1000, 0, 4).share == share
