"""A ring of sends and receives: after size - 1 steps everybody has seen every rank's tensor."""

import torch
import torch.distributed as dist

STEPS = 8


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    passing, seen = torch.full((16,), float(rank)), 0.0
    for _ in range(min(STEPS, size - 1)):
        coming = torch.empty(16)
        works = dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, passing, right), dist.P2POp(dist.irecv, coming, left)]
        )
        for work in works:
            work.wait()
        seen += coming[0].item()
        passing = coming
    dist.destroy_process_group()
    assert seen == sum((rank - step) % size for step in range(1, min(STEPS, size - 1) + 1))
    return seen


if __name__ == "__main__":
    main()
