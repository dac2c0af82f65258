"""The monitored barrier says who did not come, in the words that gloo's users know."""

import os
import time
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from ranks import BACKENDS, RankPool, raised, shared_pool

every_backend = pytest.mark.parametrize("backend", BACKENDS)
SHORT = timedelta(milliseconds=300)


def absent_until(done, count):
    """On a rank that stays away: wait, without a collective, until `count` ranks are through."""
    store = dist.FileStore(str(Path(os.environ["RANKS_DIRECTORY"], "through")), -1)
    if done:
        store.add("through", 1)
    else:
        until = time.monotonic() + 30
        while store.add("through", 0) < count:
            assert time.monotonic() < until
            time.sleep(0.01)


def call(present, group=None, **how):
    """Ranks in `present` call it, the others stay away until those are through."""
    dist.barrier(group)  # all have started, so that those who come are in time
    if dist.get_rank() not in present:
        absent_until(False, len(present))
        return None
    began = time.monotonic()
    error = raised(dist.monitored_barrier, group, **how)
    took = time.monotonic() - began
    absent_until(True, len(present))
    return error, took


def called(backend, n, present, **how):
    """What each rank saw; the ranks are used for nothing else afterwards."""
    with RankPool(n, backend) as pool:
        return pool.run(partial(call, present, **how))


@every_backend
def test_nothing_is_returned_when_all_come(backend):
    def job():
        values = [dist.monitored_barrier(), dist.monitored_barrier(wait_all_ranks=True)]
        values.append(dist.monitored_barrier(timeout=timedelta(seconds=20)))
        x = torch.ones(1)
        dist.all_reduce(x)
        return values, x.item()

    assert shared_pool(3, backend).run(job) == [([None] * 3, 3)] * 3


def test_nobody_leaves_before_the_last_has_come():
    def job():
        store = dist.FileStore(str(Path(os.environ["RANKS_DIRECTORY"], "order")), -1)
        dist.barrier()
        if dist.get_rank() == 1:
            until = time.monotonic() + 30
            while store.add("came", 0) < 2:  # the others are about to wait
                assert time.monotonic() < until
        store.add("came", 1)
        dist.monitored_barrier()
        return store.add("came", 0)

    assert shared_pool(3, "teachdist").run(job) == [3] * 3


@every_backend
def test_the_first_missing_rank_is_named_and_all_others_fail(backend):
    first, away, other = called(backend, 3, (0, 2), timeout=SHORT)
    assert away is None
    (kind, text), took = first
    assert kind == "RuntimeError"
    assert text.startswith(
        "[Rank 0]: Rank 1 failed to pass monitoredBarrier in 300 ms\n Original exception: \n"
    )
    assert took >= 0.29
    (kind, text), _ = other
    assert kind == "RuntimeError"
    assert text.startswith(
        "Rank 2 successfully reached monitoredBarrier, but received errors while waiting for "
        "send/recv from rank 0. Please check rank 0 logs for faulty rank.\n Original exception: \n"
    )


@every_backend
def test_only_the_first_is_named_by_default(backend):
    (error, _), *others = called(backend, 4, (0,), timeout=SHORT)
    assert others == [None] * 3
    assert error[1].startswith("[Rank 0]: Rank 1 failed to pass monitoredBarrier in 300 ms")


@every_backend
def test_all_missing_ranks_are_named_if_asked_for(backend):
    (error, _), *_ = called(backend, 4, (0,), timeout=SHORT, wait_all_ranks=True)
    assert error[0] == "RuntimeError"
    assert error[1].startswith("[Rank 0]: Ranks 1, 2, 3 failed to pass monitoredBarrier in 300 ms")


def test_those_who_came_are_not_among_the_missing():
    first, second, *_ = called(
        "teachdist", 4, (0, 1), timeout=timedelta(seconds=1), wait_all_ranks=True
    )
    assert first[0][1].startswith("[Rank 0]: Ranks 2, 3 failed to pass monitoredBarrier")
    assert "Rank 1 successfully reached monitoredBarrier" in second[0][1]
    assert second[0][1].endswith("Ranks 2, 3 failed to pass monitoredBarrier in 1000 ms")


def test_rank_0_missing_is_noticed_by_the_others():
    _, (error, took), _ = called("teachdist", 3, (1, 2), timeout=SHORT)
    assert "Rank 1 successfully reached monitoredBarrier, but received errors" in error[1]
    assert 0.29 <= took < 10


@every_backend
def test_without_a_timeout_the_default_one_counts(backend):
    def job():
        set_to = timedelta(milliseconds=400)
        dist.distributed_c10d._set_pg_timeout(set_to)
        dist.distributed_c10d._get_default_timeout = lambda backend: set_to
        return call((0,))

    with RankPool(2, backend) as pool:
        (error, took), _ = pool.run(job)
    assert "Rank 1 failed to pass monitoredBarrier in 400 ms" in error[1]
    assert took >= 0.39


@every_backend
def test_documented_example(backend):
    """In a world of any backend, a gloo group for the host-side barrier; rank 1 leaves it out."""

    def job():
        path = Path(os.environ["RANKS_DIRECTORY"], "store")
        dist.init_process_group(
            backend,
            init_method=f"file://{path}",
            rank=int(os.environ["RANK"]),
            world_size=2,
        )
        group = dist.new_group(backend="gloo")
        return call((0,), group, timeout=timedelta(seconds=2))

    with RankPool(2, backend=None) as pool:
        (error, took), _ = pool.run(job)
    assert error[0] == "RuntimeError"
    assert "Rank 1 failed to pass monitoredBarrier in 2000 ms" in error[1]
    assert took >= 1.9


def test_ranks_are_named_by_their_number_in_the_job():
    def job():
        group = dist.new_group([1, 2, 3])
        if dist.get_rank() == 0:
            absent_until(False, 2)
            return None
        return call((1, 3), group, timeout=SHORT)

    with RankPool(4, "teachdist") as pool:
        _, (first, _), _, (other, _) = pool.run(job)
    assert first[1].startswith("[Rank 1]: Rank 2 failed to pass monitoredBarrier")
    assert other[1].startswith("Rank 3 successfully reached monitoredBarrier")
    assert other[1].endswith("Rank 2 failed to pass monitoredBarrier in 300 ms")


def test_the_group_stays_usable():
    """What is left over of a barrier that failed is not taken for the next."""

    def job():
        failed = call((0, 1), timeout=SHORT)
        x = torch.ones(1)
        dist.all_reduce(x)
        return failed, x.item(), [dist.monitored_barrier() for _ in range(2)]

    with RankPool(3, "teachdist") as pool:
        for rank, (failed, total, passed) in enumerate(pool.run(job)):
            assert (failed is None) == (rank == 2)
            assert (total, passed) == (3, [None, None])


def test_a_backend_without_one_says_so():
    """Only gloo has it among the built-in ones; one in Python may define it, as this one does."""

    def job():
        from torch.testing._internal.distributed.fake_pg import FakeStore

        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
        try:
            return raised(dist.monitored_barrier, timeout=timedelta(seconds=1))
        finally:
            dist.destroy_process_group()

    (error,) = shared_pool(1, None).run(job)
    assert error is not None
    assert "monitoredBarrier" in error[1]
