"""The barrier belongs to all ranks, so it stands outside the branch.

torchrun --nproc-per-node 3 fixed.py
"""

import torch.distributed as dist


def main(rank):
    if rank == 0:
        write_vocabulary()
    dist.barrier()
    train()
    dist.barrier()


def write_vocabulary():
    """Stands for work that one rank does for all."""


def train():
    """Stands for work without collectives."""


if __name__ == "__main__":
    dist.init_process_group("teachdist")
    main(dist.get_rank())
    dist.destroy_process_group()
