"""Ranks 0 and 1 work together, ranks 2 and 3 do; each makes its group. Why is that not enough?

torchrun --nproc-per-node 4 broken.py
"""

import torch
import torch.distributed as dist


def main(rank):
    mine = [0, 1] if rank < 2 else [2, 3]
    group = dist.new_group(mine)
    total = torch.ones(1)
    dist.all_reduce(total, group=group)
    assert total.item() == 2


if __name__ == "__main__":
    dist.init_process_group("teachdist")
    main(dist.get_rank())
    dist.destroy_process_group()
