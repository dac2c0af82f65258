"""A hang is told at once, with the sentence of real ranks; failing ranks free the others."""

import threading
import time

import pytest
import torch
import torch.distributed as dist

from teachdist import rehearse


def told(function, ranks=4, **how):
    """The words with which rehearsing a function ends."""
    with pytest.raises(rehearse.RehearsalError) as caught:
        rehearse(function, ranks=ranks, **how)
    return str(caught.value)


def test_both_receive_first():
    def program():
        dist.recv(torch.ones(2), 1 - dist.get_rank())

    words = told(program, ranks=2)
    assert "ranks 0 and 1 wait for each other: rank 0 waits in recv(float32[2], src=rank 1" in words
    assert "test_deadlocks.py:" in words


def test_both_send_first_is_seen_without_buffers():
    def program():
        other = 1 - dist.get_rank()
        dist.send(torch.ones(2), other)
        dist.recv(torch.ones(2), other)

    rehearse(program, ranks=2)
    assert "ranks 0 and 1 wait for each other: rank 0 waits in send(float32[2], dst=rank 1" in told(
        program, ranks=2, buffers=False
    )


def test_a_send_without_buffers_is_over_with_its_receive():
    def program():
        value = torch.full((2,), float(dist.get_rank()))
        if dist.get_rank() == 0:
            work = dist.isend(value, 1)
            work.wait()
            value.fill_(9)
            return None
        time.sleep(5)
        dist.recv(value, 0)
        return value.tolist()

    answer = rehearse(program, ranks=2, buffers=False, clock="modelled")
    assert answer.results == [None, [0.0, 0.0]]
    assert answer.clocks[0].time > 5


def test_a_rank_is_missing():
    def program():
        if dist.get_rank() != 1:
            dist.all_reduce(torch.ones(3))

    words = told(program)
    assert "ranks 0, 2 and 3 are in call 1, all_reduce(float32[3], SUM)" in words
    assert "Not there: rank 1 has finished" in words


def test_another_collective():
    def program():
        if dist.get_rank() == 1:
            dist.broadcast(torch.ones(3), 0)
        else:
            dist.all_reduce(torch.ones(3))

    words = told(program)
    assert "rank 1 is in broadcast(float32[3], src=0)" in words
    assert "ranks 0, 2 and 3 are in all_reduce(float32[3], SUM)" in words
    assert "Nobody can go on" not in words  # all came: that is a mismatch, and no hang


def test_another_shape():
    def program():
        dist.all_reduce(torch.ones(3 + dist.get_rank() // 3))

    assert "The same call must have the same arguments on every rank" in told(program)


def test_two_groups_crossed():
    def program():
        pair, everybody = dist.new_group([0, 1]), dist.new_group([0, 1, 2])
        first, second = (everybody, pair) if dist.get_rank() == 0 else (pair, everybody)
        for group in (first, second):
            if dist.get_rank() < 2 or group is everybody:
                dist.all_reduce(torch.ones(1), group=group)

    assert "all ranks must use groups in the same order" in told(program, ranks=3)


def test_a_key_that_nobody_sets():
    def program():
        store = dist.TCPStore("localhost", 1234, 4, dist.get_rank() == 0)
        if dist.get_rank() == 2:
            store.get("never")
        dist.barrier()

    words = told(program)
    assert "rank 2 waits in TCPStore.get('never')" in words
    assert "ranks 0, 1 and 3 are in call 1, barrier()" in words


def test_a_lock_taken_twice():
    def program():
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()

    assert "ranks 0-3 wait in a lock at test_deadlocks.py:" in told(program)


def test_a_failed_rank_frees_the_others():
    def program():
        if dist.get_rank() == 2:
            raise ValueError("bad data")
        dist.all_reduce(torch.ones(2))

    with pytest.raises(rehearse.RehearsalError) as caught:
        rehearse(program, ranks=4)
    error = caught.value
    assert str(error).startswith("rank 2 failed: ValueError: bad data, at test_deadlocks.py:")
    assert "ranks 0, 1 and 3 were released" in str(error)
    assert isinstance(error.__cause__, ValueError)
    assert sorted(error.errors) == [0, 1, 2, 3]
    assert "released from all_reduce(float32[2], SUM)" in str(error.errors[0])


def test_equal_failures_are_told_once():
    def program():
        raise KeyError("x")

    words = told(program)
    assert words.startswith("ranks 0-3 failed: KeyError: 'x', at test_deadlocks.py:")
    assert len(words.splitlines()) == 1


def test_groups_of_other_ranks_under_one_name():
    def program():
        dist.new_group([0, 1] if dist.get_rank() == 0 else [0, 1, 2])

    assert "Every rank of the job must call new_group for every group" in told(program, ranks=3)


def test_a_tensor_that_two_ranks_share():
    shared = torch.ones(2)

    def program():
        dist.all_reduce(shared)

    assert "ranks 0 and 1 give one and the same tensor" in told(program, ranks=2)


@pytest.mark.parametrize("name", ["signal", "exit", "spawn"])
def test_what_cannot_work_is_named(name):
    def program():
        import os
        import signal

        import torch.multiprocessing as mp

        if name == "signal":
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        elif name == "exit":
            os._exit(0)
        else:
            mp.spawn(print, nprocs=2)

    assert "CannotRehearse: rehearse: " in told(program, ranks=2)


def test_after_a_hang_the_process_is_as_before():
    def program():
        if dist.get_rank() == 0:
            dist.barrier()

    before = threading.active_count()
    told(program, ranks=2)
    assert not dist.is_initialized()
    assert threading.active_count() == before
    assert rehearse(dist.get_rank, ranks=3).results == [0, 1, 2]
