"""Collectives of all kinds, each against what it is defined to give."""

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    total = size * (size - 1) / 2
    mine = torch.full((4,), float(rank))

    summed = mine.clone()
    dist.all_reduce(summed)
    assert summed.tolist() == [total] * 4

    largest = mine.clone()
    dist.reduce(largest, dst=size - 1, op=dist.ReduceOp.MAX)
    assert rank != size - 1 or largest.tolist() == [size - 1] * 4

    given = mine.clone()
    dist.broadcast(given, src=1 % size)
    assert given.tolist() == [1 % size] * 4

    everything = torch.empty(size * 4)
    dist.all_gather_single(everything, mine)
    assert everything.view(size, 4)[:, 0].tolist() == list(range(size))

    part = torch.empty(2)
    dist.reduce_scatter_single(part, torch.arange(size * 2.0))
    assert part.tolist() == [size * 2 * rank, size * (2 * rank + 1)]

    rows = torch.empty(size)
    dist.all_to_all_single(rows, torch.arange(size) * 1.0 + rank * size)
    assert rows.tolist() == [source * size + rank for source in range(size)]

    lists = [torch.empty(1) for _ in range(size)] if rank == 0 else None
    dist.gather(torch.tensor([2.0 * rank]), lists, dst=0)
    assert rank or [t.item() for t in lists] == [2.0 * r for r in range(size)]

    out = torch.empty(1)
    dist.scatter(out, list(torch.arange(size * 1.0).split(1)) if rank == 0 else None, src=0)
    assert out.item() == rank

    word = [{"from": rank}] if rank == 0 else [None]
    dist.broadcast_object_list(word, src=0)
    assert word == [{"from": 0}]

    work = dist.all_reduce(later := torch.ones(3), async_op=True)
    work.wait()
    assert later.tolist() == [size] * 3
    assert functional.all_reduce(torch.ones(2), "sum", dist.group.WORLD).tolist() == [size] * 2

    half = dist.new_group(range(0, size, 2))
    if rank % 2 == 0:
        dist.all_reduce(evens := torch.tensor([1.0]), group=half)
        assert evens.item() == -(-size // 2)
    dist.barrier()
    dist.destroy_process_group()
    return summed


if __name__ == "__main__":
    main()
