"""The last batch is shorter. Who notices?

torchrun --nproc-per-node 3 broken.py
"""

import torch
import torch.distributed as dist


def main(rank):
    losses = torch.ones(8 if rank == 2 else 10)
    dist.all_reduce(losses)


if __name__ == "__main__":
    dist.init_process_group("teachdist")
    main(dist.get_rank())
    dist.destroy_process_group()
