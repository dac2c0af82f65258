"""The mean of all losses. Who has nothing to divide by?

torchrun --nproc-per-node 3 broken.py
"""

import torch
import torch.distributed as dist


def main(rank):
    losses = [] if rank == 1 else [0.5, 1.5]
    mean = torch.tensor(sum(losses) / len(losses))
    dist.all_reduce(mean, dist.ReduceOp.AVG)


if __name__ == "__main__":
    dist.init_process_group("teachdist")
    main(dist.get_rank())
    dist.destroy_process_group()
