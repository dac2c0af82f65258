"""Padded to one size, it works on every backend.

torchrun --nproc-per-node 3 fixed.py
"""

import torch
import torch.distributed as dist


def main(rank):
    matches = torch.full((rank + 1,), float(rank))
    padded = torch.zeros(3)
    padded[: len(matches)] = matches
    everybodys = [torch.zeros(3) for _ in range(3)]
    dist.all_gather(everybodys, padded)
    everybodys = [part[: n + 1] for n, part in enumerate(everybodys)]
    assert everybodys[2].tolist() == [2, 2, 2]


if __name__ == "__main__":
    dist.init_process_group("teachdist")
    main(dist.get_rank())
    dist.destroy_process_group()
