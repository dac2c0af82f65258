"""Sums and counts can be added, also where there is nothing.

torchrun --nproc-per-node 3 fixed.py
"""

import torch
import torch.distributed as dist


def main(rank):
    losses = [] if rank == 1 else [0.5, 1.5]
    sum_and_count = torch.tensor([sum(losses), len(losses)], dtype=torch.float)
    dist.all_reduce(sum_and_count)
    assert (sum_and_count[0] / sum_and_count[1]).item() == 1


if __name__ == "__main__":
    dist.init_process_group("teachdist")
    main(dist.get_rank())
    dist.destroy_process_group()
