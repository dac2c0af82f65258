"""Rank 0 stopped in pdb and had enough: q. (BdbQuit is what q raises.)

torchrun --nproc-per-node 2 broken.py
"""

import bdb

import torch.distributed as dist


def main(rank):
    if rank == 0:
        raise bdb.BdbQuit
    dist.barrier()


if __name__ == "__main__":
    dist.init_process_group("teachdist")
    main(dist.get_rank())
    dist.destroy_process_group()
