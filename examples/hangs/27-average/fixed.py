"""Sum, then divide.

torchrun --nproc-per-node 2 fixed.py
"""

import torch
import torch.distributed as dist


def main(rank):
    mine = torch.zeros(1)
    parts = [torch.full((1,), float(rank + 1)) for _ in range(2)]
    dist.reduce_scatter(mine, parts)
    assert (mine / 2).item() == 1.5


if __name__ == "__main__":
    dist.init_process_group("teachdist")
    main(dist.get_rank())
    dist.destroy_process_group()
