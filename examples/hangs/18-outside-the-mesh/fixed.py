"""Only those inside use the group.

torchrun --nproc-per-node 3 fixed.py
"""

import torch
import torch.distributed as dist
from teachdist import DeviceMesh


def main(rank):
    mesh = DeviceMesh("cpu", [0, 1])
    total = torch.ones(1)
    if mesh.get_coordinate() is not None:
        dist.all_reduce(total, group=mesh.get_group())
    assert total.item() == (1 if rank == 2 else 2)


if __name__ == "__main__":
    dist.init_process_group("teachdist")
    main(dist.get_rank())
    dist.destroy_process_group()
