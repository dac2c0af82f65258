"""A transposed view is broadcast. Where do the numbers land?

torchrun --nproc-per-node 2 broken.py
"""

import torch
import torch.distributed as dist


def main(rank):
    matrix = torch.arange(6.0).view(2, 3).t() if rank == 0 else torch.zeros(2, 3).t()
    dist.broadcast(matrix, src=0)
    assert matrix.tolist() == [[0, 3], [1, 4], [2, 5]]
    total = torch.ones(2, 3).t()
    dist.reduce(total, dst=0)
    assert total.tolist() == [[2, 2]] * 3 or rank != 0


if __name__ == "__main__":
    dist.init_process_group("teachdist")
    main(dist.get_rank())
    dist.destroy_process_group()
