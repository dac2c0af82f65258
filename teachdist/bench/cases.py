"""What is measured: per operation, the tensors that it works on and the calls.

Each function makes a `Case` for a number of float32 elements, rank and size. `n` is the number of
elements that the operation's documentation speaks of: the whole tensor of all_reduce, all outputs
of all_gather, all inputs of reduce_scatter and all_to_all together.
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist


@dataclass
class Case:
    """call(group) is one operation; fresh() sets the inputs, check() raises if outputs are wrong.

    share: what each rank must move at least, as a share of the tensor's bytes. alone: the same
    without communication. stretch: how many times as long as others its blocks last.
    """

    call: object
    fresh: object
    check: object
    share: float
    alone: object = None
    stretch: int = 1


def all_reduce(n, rank, size):
    """Every rank's tensor becomes the sum of all."""
    x = torch.zeros(n)
    return Case(
        lambda group: dist.all_reduce(x, group=group),
        lambda: x.fill_(rank + 1),
        lambda: expect(x, size * (size + 1) / 2),
        2 * (size - 1) / size,
    )


def broadcast(n, rank, size):
    """Every rank's tensor becomes that of rank 0."""
    x = torch.zeros(n)
    return Case(
        lambda group: dist.broadcast(x, 0, group=group),
        lambda: x.fill_(rank + 1),
        lambda: expect(x, 1),
        1,
    )


def reduce(n, rank, size):
    """The tensor of rank 0 becomes the sum of all."""
    x = torch.zeros(n)
    return Case(
        lambda group: dist.reduce(x, 0, group=group),
        lambda: x.fill_(rank + 1),
        lambda: rank or expect(x, size * (size + 1) / 2),
        1,
    )


def all_gather(n, rank, size):
    """Every rank has all blocks."""
    block, out = torch.zeros(max(1, n // size)), torch.zeros(max(1, n // size) * size)
    return Case(
        lambda group: dist.all_gather_single(out, block, group=group),
        lambda: block.fill_(rank + 1),
        lambda: [expect(part, r + 1) for r, part in enumerate(out.chunk(size))],
        (size - 1) / size,
    )


def reduce_scatter(n, rank, size):
    """Every rank has its block of the sum."""
    out, x = torch.zeros(max(1, n // size)), torch.zeros(max(1, n // size) * size)
    return Case(
        lambda group: dist.reduce_scatter_single(out, x, group=group),
        lambda: x.fill_(rank + 1),
        lambda: expect(out, size * (size + 1) / 2),
        (size - 1) / size,
    )


def all_to_all(n, rank, size):
    """Block d of rank s becomes block s of rank d."""
    x = torch.zeros(max(1, n // size) * size)
    out = torch.zeros_like(x)
    return Case(
        lambda group: dist.all_to_all_single(out, x, group=group),
        lambda: [part.fill_(rank * size + d) for d, part in enumerate(x.chunk(size))],
        lambda: [expect(part, s * size + rank) for s, part in enumerate(out.chunk(size))],
        (size - 1) / size,
    )


def gather(n, rank, size):
    """Rank 0 has all blocks."""
    block = torch.zeros(max(1, n // size))
    outs = [torch.zeros_like(block) for _ in range(size)] if rank == 0 else None
    return Case(
        lambda group: dist.gather(block, outs, dst=0, group=group),
        lambda: block.fill_(rank + 1),
        lambda: rank or [expect(out, r + 1) for r, out in enumerate(outs)],
        (size - 1) / size,
    )


def scatter(n, rank, size):
    """Each rank has its block of rank 0's."""
    out = torch.zeros(max(1, n // size))
    blocks = [torch.full_like(out, r + 1) for r in range(size)] if rank == 0 else None
    return Case(
        lambda group: dist.scatter(out, blocks, src=0, group=group),
        out.zero_,
        lambda: expect(out, rank + 1),
        (size - 1) / size,
    )


def p2p(n, rank, size):
    """Neighbours in pairs send to and fro: twice the tensor per call."""
    x = torch.zeros(n)
    other = rank ^ 1

    def call(group):
        if other >= size:
            return
        if rank < other:
            dist.send(x, other, group=group)
            dist.recv(x, other, group=group)
        else:
            dist.recv(x, other, group=group)
            dist.send(x, other, group=group)

    return Case(
        call,
        lambda: x.fill_(rank + 1),
        lambda: other >= size or expect(x, min(rank, other) + 1),
        2,
    )


def barrier(n, rank, size):
    """Nobody leaves before everybody has come."""
    return Case(lambda group: dist.barrier(group=group), bool, bool, 0)


def overlap(n, rank, size):
    """As DistributedDataParallel does: compute, and all_reduce of four buckets meanwhile.

    How long it takes depends on who has a processor when: short blocks would say little.
    """
    buckets = [torch.zeros(n) for _ in range(4)]
    left = torch.ones(192, 192)

    def compute():
        for _ in range(4):
            torch.mm(left, left)

    def alone():
        for _ in buckets:
            compute()

    def call(group):
        works = []
        for bucket in buckets:
            compute()
            works.append(dist.all_reduce(bucket, group=group, async_op=True))
        for work in works:
            work.wait()

    return Case(
        call,
        lambda: [b.fill_(rank + 1) for b in buckets],
        lambda: [expect(b, size * (size + 1) / 2) for b in buckets],
        8 * (size - 1) / size,
        alone,
        stretch=3,
    )


CASES = {
    make.__name__: make
    for make in (
        all_reduce,
        broadcast,
        reduce,
        all_gather,
        reduce_scatter,
        all_to_all,
        gather,
        scatter,
        p2p,
        barrier,
        overlap,
    )
}


def expect(tensor, value):
    """Raise unless all elements are `value`."""
    if not bool((tensor == value).all()):
        raise AssertionError(f"expected {value} everywhere, got {tensor[:4].tolist()} ...")
