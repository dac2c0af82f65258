"""Other orders: what only some of them show is found, and what all keep is proven."""

import re
import time

import pytest
import torch
import torch.distributed as dist

from teachdist import explore, rehearse
from teachdist.rehearse import RehearsalError
from teachdist.rehearse.ways import Schedule


def again(function, answer, ranks):
    """What the program says by the schedule that was found."""
    with pytest.raises(RehearsalError) as caught:
        rehearse(function, ranks=ranks, schedule=str(answer.schedule))
    return str(caught.value)


def test_one_run_proves_what_has_only_one_order():
    def ring():
        rank, size = dist.get_rank(), dist.get_world_size()
        mine, theirs = torch.ones(2), torch.ones(2)
        works = [dist.isend(mine, (rank + 1) % size), dist.irecv(theirs, (rank - 1) % size)]
        for work in works:
            work.wait()
        dist.all_reduce(theirs)

    answer = explore(ring, ranks=5)
    assert answer
    assert answer.proven
    assert answer.runs == 1
    assert str(answer).startswith("5 ranks: no order and no buffers make it hang (1 run in ")
    assert answer.notes == []


def test_both_send_first():
    def program():
        other = 1 - dist.get_rank()
        dist.send(torch.ones(2), other)
        dist.recv(torch.ones(2), other)

    answer = explore(program, ranks=2)
    assert not answer
    assert str(answer.schedule) == "rendezvous"
    assert "ranks 0 and 1 wait for each other" in str(answer)
    assert "ranks 0 and 1 wait for each other" in again(program, answer, 2)


def first_come(expected):
    """Rank 0 receives from anybody, twice, and counts on an order."""

    def program():
        rank = dist.get_rank()
        if rank:
            dist.send(torch.full((1,), float(rank)), 0)
        else:
            box = torch.zeros(1)
            order = []
            for _ in range(dist.get_world_size() - 1):
                order.append(dist.recv(box))
                assert box.item() == order[-1]
            assert order in expected, order

    return program


def test_a_receive_from_anybody_takes_every_message_once():
    program = first_come([[1, 2], [2, 1]])
    answer = explore(program, ranks=3)
    assert answer.proven
    assert answer.runs == 4  # two orders, with and without buffers
    assert any("a matter of luck" in note and "test_explore.py" in note for note in answer.notes)
    assert any("looks at values" in note for note in answer.notes)
    assert explore(first_come([[1, 2, 3], [1, 3, 2], [2, 1, 3], [2, 3, 1], [3, 1, 2], [3, 2, 1]]),
                   ranks=4).runs == 12  # fmt: skip


def test_the_order_that_fails_is_found_and_is_the_shortest():
    program = first_come([[1, 2, 3], [1, 3, 2], [2, 1, 3], [2, 3, 1], [3, 1, 2]])
    answer = explore(program, ranks=4)
    assert str(answer.schedule) == "rendezvous 2 1"
    assert answer.decided == [
        "rank 0 takes what rank 3 sent",
        "rank 0 takes what rank 2 sent",
    ]
    assert "AssertionError: [3, 2, 1]" in str(answer)
    assert "[3, 2, 1]" in again(program, answer, 4)


def test_a_hang_that_needs_luck():
    """If rank 2 comes first, rank 0 waits for a second message of rank 2's, which is not sent."""

    def program():
        rank, box = dist.get_rank(), torch.zeros(1)
        if rank == 0:
            first = dist.recv(box)
            dist.recv(box, 2 if first == 2 else 3 - first)
        else:
            dist.send(box, 0)

    rehearse(program, ranks=3)
    answer = explore(program, ranks=3)
    assert not answer
    assert "rank 0 is in recv(float32[1], src=rank 2, tag=0)" in str(answer)
    assert re.search(r"recv.*test_explore.py:\d+", again(program, answer, 3))


def test_orders_that_lead_to_the_same_place_are_tried_once():
    """Two pairs of ranks have nothing to do with each other: 2 x 2 outcomes, not 24 orders."""

    def program():
        rank = dist.get_rank()
        group, base = rank // 3, rank // 3 * 3
        box = torch.zeros(1)
        if rank % 3 == 0:
            for _ in range(2):
                dist.recv(box, tag=group)
        else:
            dist.send(box, base, tag=group)

    answer = explore(program, ranks=6)
    assert answer.proven
    assert answer.runs <= 2 * 2 * 2


def test_polls_are_told_both():
    def program():
        if dist.get_rank() == 0:
            dist.send(torch.ones(1), 1)
            return
        work = dist.irecv(torch.ones(1), 0)
        early = work.is_completed()
        while not work.is_completed():
            pass
        assert early, "too early"

    answer = explore(program, ranks=2)
    assert "too early" in str(answer)
    assert any(note.startswith("is_completed (test_explore.py:") for note in answer.notes)


def test_a_poll_for_what_never_comes_is_a_hang():
    def program():
        work = dist.irecv(torch.ones(1), 0)
        while not work.is_completed():
            pass

    assert "asks for ever" in str(explore(lambda: program() if dist.get_rank() else None, ranks=2))


def test_who_comes_first_to_a_store():
    def program():
        store = dist.distributed_c10d._get_default_store()
        place = store.add("turn", 1)
        assert (place == 1) == (dist.get_rank() == 0), f"rank {dist.get_rank()} was number {place}"

    answer = explore(program, ranks=2)
    assert "rank 1 was number 1" in str(answer)
    assert any(note.startswith("store (test_explore.py:") for note in answer.notes)


def test_what_is_too_much_is_tried_by_seeds():
    orders = set()

    def program():
        rank, box = dist.get_rank(), torch.zeros(1)
        if rank:
            dist.send(box, 0)
        else:
            orders.add(tuple(dist.recv(box) for _ in range(5)))

    answer = explore(program, ranks=6, runs=20)
    assert answer
    assert not answer.proven
    assert answer.runs == 20
    assert len(orders) > 12
    assert any("more orders than 20 runs" in note for note in answer.notes)


def test_threads_and_luck_of_its_own_are_no_proof():
    import threading

    def program():
        thread = threading.Thread(target=lambda: dist.all_reduce(torch.ones(1)))
        thread.start()
        thread.join()

    answer = explore(program, ranks=2, runs=4)
    assert answer
    assert not answer.proven
    assert any("several threads" in note for note in answer.notes)


def test_rules_hold_in_every_order():
    def program():
        if dist.get_rank() == 0:
            dist.recv(torch.ones(1))
        else:
            dist.send(torch.ones(1), 0)

    assert "must name its source" in str(explore(program, ranks=2, rules="nccl"))


def test_a_failing_run_is_drawn():
    def program():
        dist.barrier()
        dist.recv(torch.ones(1), 1 - dist.get_rank())

    picture = explore(program, ranks=2).draw()
    assert picture.count("<text") == 0 or "recv from rank 1" in picture
    assert explore(dist.barrier, ranks=2).draw() == ""


def test_schedules_are_read_as_they_are_written():
    for schedule in (Schedule(), Schedule(False, (1, 0, 2)), Schedule(True, (3,), 7)):
        assert Schedule.read(str(schedule)) == schedule
    with pytest.raises(ValueError, match='expected "buffered" or "rendezvous"'):
        rehearse(time.time, ranks=2, schedule="1 2")
