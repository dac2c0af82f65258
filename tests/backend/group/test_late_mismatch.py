"""Ranks that only give in a call hear of a mismatch at their next call at the latest."""

from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from scenes import play

from teachdist.backend import Released, communicators
from teachdist.backend.group.late_mismatch import LateMismatch


def done(rank):
    """Say that this rank has made its calls, and wait until all have said so."""
    store, size = communicators()[0].shared, dist.get_world_size()
    store.set(f"done/{rank}", "")
    store.wait([f"done/{other}" for other in range(size)])


def test_a_root_that_nobody_reads_learns_it_at_its_next_call():
    def scene(rank):
        x = torch.ones(4)
        if rank == 0:
            dist.broadcast(x, 0)
        else:
            with pytest.raises(RuntimeError, match="rank 0 is in broadcast"):
                dist.all_reduce(x)
        done(rank)
        dist.broadcast(x, 0)  # again one in which rank 0 only gives

    for outcome in play(scene):
        assert 'group "0", call 1: ' in outcome.said
        assert "rank 0 is in broadcast(float32[4], src=0) at test_late_mismatch.py" in outcome.said
        assert "rank 1 is in all_reduce(float32[4], SUM) at test_late_mismatch.py" in outcome.said


def test_two_ranks_that_both_only_give():
    """Nobody waits for anything, so nobody notices before the next call."""

    def scene(rank):
        x = torch.ones(4)
        dist.broadcast(x, 0) if rank == 0 else dist.reduce(x, 0)
        done(rank)
        dist.barrier()

    sentence = (
        'group "0", call 1: rank 1 is in reduce(float32[4], SUM, dst=0) at test_late_mismatch.py',
        "rank 0 is in broadcast(float32[4], src=0) at test_late_mismatch.py",
    )
    for outcome in play(scene):
        assert all(part in outcome.said for part in sentence), outcome.said


def test_on_two_hosts_what_is_left_on_the_wire_tells_it():
    def scene(rank):
        x = torch.ones(4)
        dist.broadcast(x, 0) if rank == 0 else dist.reduce(x, 0)
        done(rank)
        dist.barrier()

    for outcome in play(scene, hosts="ab"):
        assert isinstance(outcome.error, dist.DistBackendError)
        assert "Collectives match by order" in outcome.said


def test_a_rank_that_leaves_says_it_on_the_log():
    def scene(rank):
        x = torch.ones(4)
        dist.barrier()
        dist.broadcast(x, 0) if rank == 0 else dist.reduce(x, 0)
        done(rank)

    outcomes = play(scene)
    assert [outcome.error for outcome in outcomes] == [None, None]
    assert any('group "0", call 2: ' in outcome.said for outcome in outcomes)


def test_a_rank_that_left_the_group_and_made_another_is_still_read():
    """The page of the new group must not take the place of the one that the other has to see."""

    def scene(rank):
        x, (world,) = torch.ones(4), communicators()
        old = dist.new_group([0, 1])
        dist.all_reduce(x, group=old)
        if rank == 1:
            world.shared.wait(["gone"])
            dist.reduce(x, 0, group=old)
        else:
            dist.broadcast(x, 0, group=old)
        dist.destroy_process_group(old)
        if rank == 0:
            world.shared.set("gone", "")
        dist.all_reduce(x, group=dist.new_group([0, 1]))

    outcomes = play(scene)
    assert [outcome.error for outcome in outcomes] == [None, None]
    assert "call 2: rank 1 is in reduce" in outcomes[1].said
    assert "rank 0 is in broadcast(float32[4], src=0)" in outcomes[1].said


def test_calls_that_agree_are_forgotten():
    def scene(rank):
        x = torch.ones(4)
        for root in (0, 1, 0, 0, 1):
            dist.broadcast(x, root)
            dist.reduce(x, root)
        dist.barrier()
        (communicator,) = communicators()
        communicator.late_mismatch.look_back(communicator)  # all have come to all of them by now
        return communicator.late_mismatch.pending

    assert [outcome.value for outcome in play(scene)] == [False, False]


def test_when_to_look_back():
    """At once before a call that takes something, after a while, or when there is much."""
    gives, takes = (SimpleNamespace(plan=SimpleNamespace(listens=one)) for one in (False, True))
    communicator, late_mismatch = SimpleNamespace(others=[], view=None), LateMismatch()
    late_mismatch.note(1, 7, "broadcast")
    assert late_mismatch.due(gives)  # it has never looked
    late_mismatch.look_back(communicator)
    late_mismatch._looked += 3600  # as if no time passed
    assert not late_mismatch.due(gives)
    assert late_mismatch.due(takes)
    assert late_mismatch.due(None)
    for number in range(2, 10):
        assert not late_mismatch.due(gives)
        late_mismatch.note(number, 7, "broadcast")
    assert late_mismatch.due(gives)


def test_a_rank_released_elsewhere():
    """Rank 1 fails outside of calls: a root that needs nobody is stopped at its next call."""

    def scene(rank):
        x = torch.ones(4)
        dist.barrier()
        if rank == 1:
            done(rank)
            raise ValueError("bad batch")
        dist.broadcast(x, 0)
        done(rank)
        with pytest.raises(Released, match="rank 1 failed: ValueError: bad batch, at test_late_"):
            give_for_ever(x)

    def give_for_ever(x):
        while True:
            dist.broadcast(x, 0)

    assert play(scene)[0].error is None


def test_between_hosts_a_message_left_from_an_earlier_call_names_that_call():
    def scene(rank):
        x = torch.ones(4)
        dist.barrier()
        dist.broadcast(x, rank)  # each gives, and sends
        dist.all_reduce(x)  # finds the other's message of the call before

    for outcome in play(scene, hosts=["a", "b"]):
        assert isinstance(outcome.error, dist.DistBackendError)
        assert 'group "0", call 2: ' in outcome.said
        assert "broadcast(float32[4], src=0)" in outcome.said
        assert "broadcast(float32[4], src=1)" in outcome.said


def test_between_hosts_two_that_both_give_more_than_sockets_hold():
    """Each waits for room at the other, and neither reads: what has come tells them."""

    def scene(rank):
        x = torch.ones(4 << 20)
        dist.barrier()
        dist.broadcast(x, 0) if rank == 0 else dist.reduce(x, 0)

    for outcome in play(scene, hosts=["a", "b"]):
        assert isinstance(outcome.error, dist.DistBackendError)
        assert 'group "0", call 2: ' in outcome.said
        assert "rank 0 is in broadcast(float32[4194304], src=0)" in outcome.said
        assert "rank 1 is in reduce(float32[4194304], SUM, dst=0)" in outcome.said
        assert outcome.seconds < 20
