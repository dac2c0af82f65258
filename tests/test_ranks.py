import os
import signal
import time

import pytest
import torch
import torch.distributed as dist
from ranks import RankDiedError, RankPool, RankTimeoutError, run_ranks, shared_pool


def rank_sum(start):
    x = torch.tensor([float(start + dist.get_rank())])
    dist.all_reduce(x)
    return x


def test_returns_by_rank():
    assert run_ranks(3, rank_sum, 1) == [6, 6, 6]
    assert run_ranks(2, lambda: os.environ["RANK"], backend=None) == ["0", "1"]


def test_pool_is_reused():
    with RankPool(2) as pool:
        first = pool.run(os.getpid)
        assert pool.run(os.getpid) == first
        assert len(set(first)) == 2
    for pid in first:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_shared_pool_is_one():
    assert shared_pool(2) is shared_pool(2)


def test_autograd_works_after_the_tests_used_it():
    def gradient():
        x = torch.ones(1, requires_grad=True)
        (x * 2).sum().backward()
        return x.grad.item()

    assert gradient() == 2
    assert shared_pool(2).run(gradient) == [2, 2]


def test_exception_names_rank_and_line():
    def fail():
        if dist.get_rank() == 1:
            raise KeyError("lost")
        return "fine"

    pool = shared_pool(2)
    with pytest.raises(KeyError, match="lost") as caught:
        pool.run(fail)
    assert "raised on rank 1" in caught.value.__notes__[0]
    assert "in fail" in caught.value.__notes__[0]
    outcomes = pool.outcomes(fail)
    assert outcomes[0] == "fine"
    assert isinstance(outcomes[1], KeyError)
    assert pool.run(rank_sum, 0) == [1, 1]


def test_exception_that_cannot_travel_comes_as_text():
    class OddError(Exception):
        def __init__(self, a, b):
            super().__init__(f"{a}{b}")

    def fail():
        raise OddError(1, 2)

    with pytest.raises(RuntimeError, match="OddError: 12"):
        shared_pool(2).run(fail)


def test_dead_rank_is_named():
    def die():
        if dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    outcomes = shared_pool(2).outcomes(die)
    assert outcomes[0] is None
    assert isinstance(outcomes[1], RankDiedError)
    assert "rank 1 died, exit code -9" in str(outcomes[1])


def test_time_out_shows_where_a_rank_stands_and_kills_it():
    def hang_around():
        while dist.get_rank() == 0:
            time.sleep(0.01)
        return os.getpid()

    pool = shared_pool(2)
    before = pool.run(os.getpid)
    outcomes = pool.outcomes(hang_around, timeout=1)
    assert outcomes[1] == before[1]
    assert isinstance(outcomes[0], RankTimeoutError)
    assert "in hang_around" in str(outcomes[0])
    with pytest.raises(ProcessLookupError):
        os.kill(before[0], 0)


def test_an_exception_may_be_a_result():
    errors = shared_pool(2).run(lambda: ValueError("kept"))
    assert [str(error) for error in errors] == ["kept", "kept"]
