"""The mesh has ranks 0 and 1. What does rank 2 get?

torchrun --nproc-per-node 3 broken.py
"""

import torch
import torch.distributed as dist
from teachdist import DeviceMesh


def main(rank):
    mesh = DeviceMesh("cpu", [0, 1])
    total = torch.ones(1)
    dist.all_reduce(total, group=mesh.get_group())


if __name__ == "__main__":
    dist.init_process_group("teachdist")
    main(dist.get_rank())
    dist.destroy_process_group()
