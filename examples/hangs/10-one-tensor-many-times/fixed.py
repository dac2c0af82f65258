"""A tensor for each rank.

torchrun --nproc-per-node 3 fixed.py
"""

import torch
import torch.distributed as dist


def main(rank):
    mine = torch.full((2,), float(rank))
    parts = [torch.zeros(2) for _ in range(3)]
    dist.all_gather(parts, mine)
    assert [part[0].item() for part in parts] == [0, 1, 2]


if __name__ == "__main__":
    dist.init_process_group("teachdist")
    main(dist.get_rank())
    dist.destroy_process_group()
