"""Every operation once, small, with its answer checked: the table that tests of faults go through.

Each is fn(group, rank, size) on the group's ranks 0..size-1; `ROLES` names, for the operations in
which ranks differ, whom a fault hits hardest: the root where it gives, a leaf where it takes.
"""

import torch
import torch.distributed as dist


def all_reduce(group, rank, size, n=8):
    x = torch.full((n,), rank + 1.0)
    dist.all_reduce(x, group=group)
    assert x.eq(size * (size + 1) / 2).all()


def reduce(group, rank, size, n=8):
    x = torch.full((n,), rank + 1.0)
    dist.reduce(x, group_dst=0, group=group)
    assert rank or x.eq(size * (size + 1) / 2).all()


def broadcast(group, rank, size, n=8):
    x = torch.full((n,), rank + 1.0)
    dist.broadcast(x, group_src=size - 1, group=group)
    assert x.eq(size).all()


def all_gather(group, rank, size, n=8):
    outs = [torch.zeros(n) for _ in range(size)]
    dist.all_gather(outs, torch.full((n,), rank + 1.0), group=group)
    assert all(out.eq(r + 1).all() for r, out in enumerate(outs))


def reduce_scatter(group, rank, size, n=8):
    out = torch.zeros(n)
    dist.reduce_scatter(out, [torch.full((n,), d + 1.0) for d in range(size)], group=group)
    assert out.eq(size * (rank + 1)).all()


def gather(group, rank, size, n=8):
    outs = [torch.zeros(n) for _ in range(size)] if rank == 0 else None
    dist.gather(torch.full((n,), rank + 1.0), outs, group_dst=0, group=group)
    assert rank or all(out.eq(r + 1).all() for r, out in enumerate(outs))


def scatter(group, rank, size, n=8):
    out = torch.zeros(n)
    root = size - 1
    blocks = [torch.full((n,), r + 1.0) for r in range(size)] if rank == root else None
    dist.scatter(out, blocks, group_src=root, group=group)
    assert out.eq(rank + 1).all()


def all_to_all(group, rank, size, n=8):
    outs = [torch.zeros(n + s) for s in range(size)]
    ins = [torch.full((n + rank,), 10.0 * rank + d) for d in range(size)]
    dist.all_to_all(outs, ins, group=group)
    assert all(out.eq(10.0 * s + rank).all() for s, out in enumerate(outs))


def barrier(group, rank, size, n=8):
    dist.barrier(group=group)


def send_recv(group, rank, size, n=8):
    """Everybody sends to the next and receives from the one before."""
    x, y = torch.full((n,), float(rank)), torch.zeros(n)
    sent = dist.isend(x, group_dst=(rank + 1) % size, group=group)
    dist.recv(y, group_src=(rank - 1) % size, group=group)
    sent.wait()
    assert y.eq((rank - 1) % size).all()


CALLS = {
    fn.__name__: fn
    for fn in (
        all_reduce,
        reduce,
        broadcast,
        all_gather,
        reduce_scatter,
        gather,
        scatter,
        all_to_all,
        barrier,
        send_recv,
    )
}
