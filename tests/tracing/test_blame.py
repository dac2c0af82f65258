"""Who kept whom waiting: the right rank, line, step and milliseconds of delays put in."""

import re
import time

import pytest
import torch
import torch.distributed as dist

from teachdist import rehearse, trace, tracing
from teachdist.tracing.program import Program
from teachdist.tracing.replay import replay


def train(delays, steps=8, work=0.01):
    """A training loop on one rank; delays: {(rank, step): seconds}, steps from 1."""
    for step in range(1, steps + 1):
        time.sleep(work)
        time.sleep(delays.get((dist.get_rank(), step), 0.0))
        dist.all_reduce(torch.ones(100))
        handle = dist.all_reduce(torch.ones(50), async_op=True)
        time.sleep(work / 2)
        handle.wait()


@pytest.mark.parametrize("ranks", [2, 3, 5, 8])
def test_a_late_rank_is_named_with_its_line_and_milliseconds(ranks):
    late = ranks - 1
    found = rehearse(train, {(late, s): 0.04 for s in range(1, 9)}, ranks=ranks).blame()
    first = found.reasons[0]
    assert (first.rank, first.kind, first.name) == (late, "computing", "all_reduce")
    assert first.site.startswith("test_blame.py:")
    assert first.seconds == pytest.approx(0.04, rel=0.1)
    said = rf"waiting for rank {late}, which comes (39|40)(\.\d)? ms late to all_reduce"
    assert re.search(said, found.sentence)
    assert ", in every step" in found.sentence


def test_since_which_step():
    found = rehearse(train, {(1, s): 0.03 for s in range(5, 9)}, ranks=4).blame()
    assert ", from step 5 on" in found.sentence


def test_in_which_steps():
    found = rehearse(train, {(1, 3): 0.03, (1, 6): 0.03}, ranks=4).blame()
    assert ", in step 3, 6 only" in found.sentence


def test_without_the_delay():
    delays = {(2, s): 0.03 for s in range(1, 9)}
    with_it = rehearse(train, delays, ranks=4).blame()
    without = rehearse(train, {}, ranks=4).blame()
    assert with_it.seconds - without.seconds == pytest.approx(8 * 0.03, rel=0.1)
    start = 0.03  # of the first step, which is told apart
    assert with_it.without() == pytest.approx(without.seconds + start, rel=0.1)


def relay(slow):
    """Each rank takes, computes, and hands on; the last one's time is decided by the slow one."""
    rank, size = dist.get_rank(), dist.get_world_size()
    value = torch.ones(10)
    for _ in range(6):
        if rank:
            dist.recv(value, rank - 1)
        time.sleep(0.03 if rank == slow else 0.01)
        if rank < size - 1:
            dist.send(value, rank + 1)
    dist.barrier()


def test_a_wait_is_followed_back_through_ranks_that_were_kept_waiting_themselves():
    found = rehearse(relay, 1, ranks=4).blame()
    first = found.reasons[0]
    assert (first.rank, first.name) == (1, "send")
    assert first.waited > 5 * sum(reason.waited for reason in found.reasons[1:] if reason.rank > 1)


def two_groups():
    """Rank 0 is late in the first group; rank 1 comes late to the second because of that."""
    first, second = dist.new_group([0, 1]), dist.new_group([1, 2])
    rank = dist.get_rank()
    for _ in range(6):
        if rank < 2:
            time.sleep(0.03 if rank == 0 else 0.0)
            dist.all_reduce(torch.ones(1), group=first)
        if rank > 0:
            dist.all_reduce(torch.ones(1), group=second)


def test_a_wait_is_followed_into_another_group():
    found = rehearse(two_groups, ranks=3).blame()
    assert {reason.rank for reason in found.reasons if reason.waited > 0.01} == {0}


def alone():
    for _ in range(5):
        time.sleep(0.01)
        dist.all_reduce(torch.ones(1))


def test_ranks_that_come_together_wait_for_nobody():
    assert rehearse(alone, ranks=4).blame().sentence.startswith("No rank waits for another")


def test_ranks_that_take_turns_at_being_late():
    found = rehearse(train, {(s % 4, s): 0.03 for s in range(1, 9)}, ranks=4).blame()
    assert "jitter, not a slow rank" in found.sentence


def nothing():
    return dist.get_rank()


def test_nothing_was_called():
    assert rehearse(nothing, ranks=2).blame().sentence.startswith("Nothing was traced")


@pytest.mark.parametrize("body", [train, relay, two_groups, alone])
def test_played_again_with_its_own_times_a_run_gives_its_own_end(body):
    arguments = {train: [{(1, 2): 0.02, (2, 4): 0.03}], relay: [2]}.get(body, [])
    program = Program(rehearse(body, *arguments, ranks=3).logs)
    ends = replay(program)
    for rank, items in program.items.items():
        assert ends[rank] == pytest.approx(items[-1].until - program.began, rel=0.01)


def test_the_critical_path_covers_the_run_and_stays_with_the_late_rank():
    found = rehearse(train, {(2, s): 0.05 for s in range(1, 9)}, ranks=4).blame()
    path = found.program.critical_path()
    assert path[0][1] == pytest.approx(0.0, abs=1e-6)
    assert path[-1][2] == pytest.approx(found.seconds)
    assert all(a[2] == pytest.approx(b[1]) for a, b in zip(path, path[1:], strict=False))
    assert sum(end - begin for rank, begin, end in path if rank == 2) > 0.8 * found.seconds


def test_the_picture_has_a_row_for_each_rank_and_the_path():
    drawn = rehearse(train, {(1, 2): 0.05}, ranks=3).blame().svg()
    assert all(f">rank {rank}<" in drawn for rank in range(3))
    assert "critical path" in drawn


def test_tables():
    text = str(rehearse(train, {(1, s): 0.05 for s in range(1, 9)}, ranks=3).blame())
    assert "others waited for it" in text
    assert "without it" in text


@pytest.mark.ranks(3)
def test_traces_that_are_gathered_know_it_too():
    with trace() as mine:
        train({(1, s): 0.02 for s in range(1, 9)})
    assert "waiting for rank 1" in tracing.gather(mine).blame().sentence


def with_a_slow_start():
    """Rank 1 starts late once, and comes late in every step."""
    rank = dist.get_rank()
    time.sleep(0.4 if rank == 1 else 0.0)
    for _ in range(12):
        time.sleep(0.03 if rank == 1 else 0.01)
        dist.all_reduce(torch.ones(10))


def test_a_slow_start_does_not_hide_slow_steps():
    found = rehearse(with_a_slow_start, ranks=3).blame()
    assert found.reasons[0].seconds == pytest.approx(0.02, rel=0.1)
    assert "Of 30" in found.sentence
    assert " a step 20" in found.sentence or " a step 1" in found.sentence
