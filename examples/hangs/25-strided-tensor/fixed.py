"""Contiguous memory works on every backend.

torchrun --nproc-per-node 2 fixed.py
"""

import torch
import torch.distributed as dist


def main(rank):
    matrix = torch.arange(6.0).view(2, 3).t() if rank == 0 else torch.zeros(2, 3).t()
    matrix = matrix.contiguous()
    dist.broadcast(matrix, src=0)
    assert matrix.tolist() == [[0, 3], [1, 4], [2, 5]]


if __name__ == "__main__":
    dist.init_process_group("teachdist")
    main(dist.get_rank())
    dist.destroy_process_group()
