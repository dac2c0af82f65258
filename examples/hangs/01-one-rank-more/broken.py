"""Rank 0 writes the vocabulary, the others wait for it. Why does rank 0 hang at the end?

torchrun --nproc-per-node 3 broken.py
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
