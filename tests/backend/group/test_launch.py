"""Two launches that were given one store: both are told, and do not go on together."""

import os
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from ranks import raised, shared_pool

LAUNCHES = {0: ("A", 0), 1: ("B", 1), 2: ("B", 0), 3: ("A", 1)}  # by the order in which they come


def join(store, rank, size):
    dist.init_process_group("teachdist", store=store, rank=rank, world_size=size)


def reduce_until_told(turns):
    """Go on until it is refused; the others come after the first all_reduce."""
    for number in range(2000):
        dist.all_reduce(torch.ones(1))
        if number == 0:
            turns.set("computed", "")


def in_turn(path, size_of_b, launcher=False):
    """One of four processes: which launch it is and what it was told, as (class, text)."""
    me = int(os.environ["RANK"])
    launch, rank = LAUNCHES[me]
    size = size_of_b if launch == "B" else 2
    if launcher:
        os.environ |= {"TORCHELASTIC_RUN_ID": launch, "TORCHELASTIC_RESTART_COUNT": "0"}
    turns = dist.FileStore(f"{path}.turns", 4)
    store = dist.FileStore(f"{path}.store", 4)
    store.set_timeout(timedelta(seconds=20))
    try:
        if me >= 2 and size_of_b == 2 and not launcher:
            turns.wait(["computed"])  # A0 and B1 have met
        told = raised(join, store, rank, size)
        if told is None:
            told = raised(reduce_until_told, turns)
        turns.add("told", 1)
        while turns.add("told", 0) < 2:  # still there when the others come
            pass
        return told
    finally:
        os.environ.pop("TORCHELASTIC_RUN_ID", None)
        os.environ.pop("TORCHELASTIC_RESTART_COUNT", None)
        if dist.is_initialized():
            dist.destroy_process_group()


def test_two_launches_of_one_size(tmp_path):
    told = shared_pool(4, backend=None).run(in_turn, str(tmp_path / "file"), 2)
    for me, (kind, text) in enumerate(told):
        assert kind in ("DistBackendError", "Released")
        assert "two launches use one store: rank" in text
        assert "Give each launch an address, port or file of its own" in text
        if me >= 2:
            assert text.startswith(f"rank {LAUNCHES[me][1]} gave up in init_process_group")


def meet_of_two(path, sizes, launcher=False):
    """Rank 0 of one launch and rank 1 of another meet."""
    me = int(os.environ["RANK"])
    if launcher:
        os.environ |= {"TORCHELASTIC_RUN_ID": "AB"[me], "TORCHELASTIC_RESTART_COUNT": "0"}
    try:
        return raised(join, dist.FileStore(path, 2), me, sizes[me])
    finally:
        os.environ.pop("TORCHELASTIC_RUN_ID", None)
        os.environ.pop("TORCHELASTIC_RESTART_COUNT", None)


@pytest.mark.parametrize("sizes", [(2, 3), (3, 2)])
def test_launches_of_two_and_three_ranks(tmp_path, sizes):
    first, second = shared_pool(2, backend=None).run(meet_of_two, str(tmp_path / "file"), sizes)
    for (kind, text), mine, theirs in ((first, *sizes), (second, *sizes[::-1])):
        assert kind in ("DistBackendError", "Released")
        assert "two launches use one store: this one is one of" in text
        assert f"{mine} ranks" in text
        assert f"{theirs} ranks" in text


def test_two_runs_of_torchrun(tmp_path):
    told = shared_pool(2, backend=None).run(meet_of_two, str(tmp_path / "file"), (2, 2), True)
    assert all("that torchrun calls run" in text for _, text in told)


def again(path):
    """The same process, group after group on one store: no second launch."""
    for _ in range(3):
        rank = int(os.environ["RANK"])
        store = dist.FileStore(path, 2)
        join(store, rank, 2)
        dist.all_reduce(torch.ones(1))
        dist.destroy_process_group()
    return True


def test_a_launch_after_another_is_none(tmp_path):
    assert shared_pool(2, backend=None).run(again, str(tmp_path / "file")) == [True, True]
