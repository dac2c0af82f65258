"""A rank dies, stops, is cut off, runs out of memory or descriptors, in every operation.

The others must say so, in the documented exceptions, naming the rank, within about a second of a
death (at the deadline for a rank that is only stopped); and the processes that are left must be
able to make a group again. Three ranks; the last is the one that fails: it is the root of broadcast
and scatter, a leaf of reduce and gather, and a neighbour of both others in the rest.
"""

import os
import resource
import signal
import socket
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from calls import CALLS
from ranks import RankDiedError, shared_pool
from scenes import play
from traces import descriptors, memory, threads

SOON = 3.0  # seconds; a death is noticed within half a second, but machines may be busy
VICTIM = 2
WAITS_FOR_NOBODY = {"gather": 1, "reduce": 1}  # ranks that only give may be through in time


def meet(name, rank, size, timeout=30.0):
    store = dist.FileStore(str(Path(os.environ["RANKS_DIRECTORY"], name)), size)
    limit = timedelta(seconds=timeout)
    dist.init_process_group("teachdist", store=store, rank=rank, world_size=size, timeout=limit)


def die(how):
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    os._exit(3)


def dies_in(op, how):
    """What a survivor saw: (exception, its text, seconds), and what it could do afterwards."""
    import teachdist.backend  # noqa: F401

    rank = int(os.environ["RANK"])
    meet("before", rank, 3)
    call = CALLS[op]
    call(None, rank, 3)
    dist.barrier()
    if rank == VICTIM:
        die(how)
    seen = None
    began = time.monotonic()
    try:
        while True:  # a rank that only gives may not need the dead one at first
            call(None, rank, 3)
    except dist.DistError as error:
        seen = (type(error).__name__, str(error), time.monotonic() - began)
    dist.destroy_process_group()
    meet("after", rank, 2)
    for again in CALLS.values():
        again(None, rank, 2)
    dist.destroy_process_group()
    return seen


@pytest.mark.parametrize("op", CALLS)
@pytest.mark.parametrize("how", ["kill", "exit"])
def test_a_rank_dies(op, how):
    if how == "exit" and op not in ("all_reduce", "send_recv"):
        pytest.skip("an exit is told apart from a kill by nobody: two operations are enough")
    *survivors, victim = shared_pool(3, backend=None).outcomes(dies_in, op, how)
    assert isinstance(victim, RankDiedError)
    for outcome in survivors:
        assert not isinstance(outcome, Exception), outcome
        kind, text, seconds = outcome
        assert kind in ("DistBackendError", "DistNetworkError", "Released")
        assert f"rank {VICTIM}" in text
        assert seconds < SOON


def raises_in(rank, op):
    call = CALLS[op]
    call(None, rank, 3)
    if rank == VICTIM:
        raise RuntimeError("out of ideas")
    while True:
        call(None, rank, 3)


@pytest.mark.parametrize("op", CALLS)
def test_a_rank_raises(op):
    outcomes = play(raises_in, op, n=3)
    assert "out of ideas" in str(outcomes[VICTIM].error)
    for outcome in outcomes[:VICTIM]:
        assert isinstance(outcome.error, dist.DistError)
        assert "rank 2 failed: RuntimeError: out of ideas" in str(outcome.error)
        assert outcome.seconds < SOON


def stops_in(rank, op):
    call = CALLS[op]
    call(None, rank, 2)
    pids = [None, None]
    dist.all_gather_object(pids, os.getpid())
    if rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    began = time.monotonic()
    try:
        while True:
            call(None, rank, 2)
    except dist.DistError as error:
        said = str(error)
    seconds = time.monotonic() - began
    if rank == 0:
        os.kill(pids[1], signal.SIGCONT)
    return said, seconds


@pytest.mark.parametrize("op", ["all_reduce", "broadcast", "barrier", "send_recv"])
def test_a_rank_is_stopped_beyond_the_deadline(op):
    waiting, stopped = play(stops_in, op, n=2, timeout=1.0)
    said, seconds = waiting.value
    assert "rank 1" in said
    assert "timeout of 1 s" in said
    assert 1.0 <= seconds < 1.0 + SOON
    assert stopped.value is not None


def cut_in(rank, op):
    from teachdist.backend import communicators
    from teachdist.links.rendezvous.listener import COLLECTIVE, P2P

    call = CALLS[op]
    call(None, rank, 2)
    (communicator,) = communicators()
    if rank == 1:
        for purpose in (COLLECTIVE, P2P):
            for channel in communicator.peers.sockets(purpose).connections.values():
                channel.cut()
    while True:
        call(None, rank, 2)


@pytest.mark.parametrize("op", ["all_reduce", "all_to_all", "broadcast", "barrier", "send_recv"])
def test_a_connection_is_cut(op):
    outcomes = play(cut_in, op, n=2, hosts=("here", "there"))
    assert {type(o.error).__name__ for o in outcomes} <= {"DistNetworkError", "Released"}
    assert any("rank 1" in str(o.error) or "rank 0" in str(o.error) for o in outcomes)
    assert all(o.seconds < SOON for o in outcomes)


def without_memory(rank):
    """Rank 1 may not make files of more than 64 KB, and so no shared memory."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    if rank == 1:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, limits[1]))
    try:
        for call in CALLS.values():
            call(None, rank, 3)
            call(None, rank, 3, 300_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    from teachdist.backend import communicators

    (communicator,) = communicators()
    return {peer: type(link).__name__ for peer, link in communicator.links.kinds.items()}


def test_a_rank_without_shared_memory_uses_sockets():
    outcomes = play(without_memory, n=3)
    assert [o.error for o in outcomes] == [None] * 3
    assert outcomes[0].value == {1: "TcpLinks", 2: "ShmLinks"}
    assert outcomes[1].value == {0: "TcpLinks", 2: "TcpLinks"}
    said = [line for line in outcomes[1].log if "no shared memory" in line]
    assert len(said) == 1
    assert not any("shared memory" in line for o in (outcomes[0], outcomes[2]) for line in o.log)


def without_descriptors(rank):
    """Rank 1 opens files until it may not open more, and only then needs a connection."""
    dist.barrier()
    other = dist.new_group(backend="teachdist", timeout=timedelta(seconds=2))
    dist.barrier()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    if rank == 1:
        most = max(map(int, os.listdir("/proc/self/fd")))
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, limits[1]))
        held = []
        while True:
            try:
                held.append(os.open("/dev/null", os.O_RDONLY))
            except OSError:
                break
    said, began = None, time.monotonic()
    try:
        dist.all_reduce(torch.ones(3), group=other)
    except dist.DistError as error:
        said = str(error)
    seconds = time.monotonic() - began
    if rank == 1:
        for fd in held:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    dist.destroy_process_group(other)
    again = dist.new_group(backend="teachdist")
    CALLS["all_reduce"](again, rank, 2)
    return said, seconds


@pytest.mark.parametrize("hosts", [None, ("here", "there")])
def test_no_descriptors_are_left(hosts):
    outcomes = play(without_descriptors, n=2, hosts=hosts)
    assert [o.error for o in outcomes] == [None, None]
    poor_said, _ = outcomes[1].value
    assert "open files" in poor_said or "descriptor" in poor_said
    assert all(o.value[0] is not None for o in outcomes)
    assert all(o.value[1] < 2 + SOON for o in outcomes)


def comes_and_goes(rank, times):
    """Groups that are made, used and destroyed again and again."""
    before = None
    dist.barrier()  # the job's own group then has a view of the other ranks' boards, and keeps it
    for turn in range(times):
        group = dist.new_group(backend="teachdist")
        for call in CALLS.values():
            call(group, rank, 2)
        dist.destroy_process_group(group)
        now = (memory(), descriptors(), threads())
        if turn == 1:  # what the first ones leave is kept for later ones
            before = now
    return before, now


def test_nothing_is_left_of_a_group():
    for outcome in play(comes_and_goes, 6, n=2):
        assert outcome.error is None
        before, after = outcome.value
        assert before == after


def test_nothing_is_left_in_the_file_system():
    names = {p.name for folder in ("/dev/shm", "/tmp") for p in Path(folder).glob("*teachdist*")}
    play(comes_and_goes, 1, n=2)
    after = {p.name for folder in ("/dev/shm", "/tmp") for p in Path(folder).glob("*teachdist*")}
    assert not {name for name in after - names if "board" in name or "shm" in name}


def interrupted(rank):
    """Ctrl-C in a collective that waits for another host or this one."""
    dist.barrier()
    if rank == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        reader, writer = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            reader.recv(1)
            time.sleep(0.2)
            os.kill(os.getppid(), signal.SIGINT)
            os._exit(0)
        writer.send(b"x")
        try:
            dist.all_reduce(torch.ones(3))
        finally:
            os.waitpid(pid, 0)
            signal.signal(signal.SIGINT, signal.SIG_DFL)
    dist.barrier()
    dist.barrier()


@pytest.mark.parametrize("hosts", [None, ("here", "there")])
def test_ctrl_c_ends_a_wait_and_frees_the_others(hosts):
    def scene(rank):
        if rank == 0:
            interrupted(rank)
        else:
            dist.barrier()
            dist.recv(torch.zeros(1), 0)  # rank 0 is in all_reduce

    first, second = play(scene, n=2, hosts=hosts)
    assert isinstance(first.error, KeyboardInterrupt)
    assert "interrupted" in str(second.error)
    assert first.seconds < SOON
