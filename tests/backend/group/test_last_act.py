"""A program's last act is to make a group, or to abort one, where rank 0 serves torch's store."""

import contextlib
import socket

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def program(rank, size, port, act, late):
    """Rank `late` comes to the last act only when the others have been through it, if they go."""
    method = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("teachdist", init_method=method, rank=rank, world_size=size)
    if act == "abort":
        dist.all_reduce(torch.ones(1))
    if rank == late:
        with socket.create_connection(("127.0.0.1", port)) as waiting:
            waiting.settimeout(0.7)  # until the store is gone, or for a while
            with contextlib.suppress(TimeoutError):
                waiting.recv(1)
    if act == "abort":
        dist.distributed_c10d._abort_process_group()
        return
    dist.new_group(list(range(size)) if act == "all" else [0, late])
    dist.destroy_process_group()


@pytest.mark.parametrize(("act", "size"), [("all", 2), ("two", 3), ("abort", 2)])
def test_the_program_ends_quietly_on_all_ranks(act, size):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(program, (size, port, act, size - 1), nprocs=size)
