"""Nobody is killed.

torchrun --nproc-per-node 3 fixed.py
"""

import torch
import torch.distributed as dist


def main(rank):
    total = torch.ones(4)
    dist.all_reduce(total)
    dist.all_reduce(total)


if __name__ == "__main__":
    dist.init_process_group("teachdist")
    main(dist.get_rank())
    dist.destroy_process_group()
