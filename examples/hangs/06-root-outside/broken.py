"""The group's first rank has the weights. Which number has it?

torchrun --nproc-per-node 3 broken.py
"""

import torch
import torch.distributed as dist


def main(rank):
    group = dist.new_group([1, 2])
    if rank != 0:
        weights = torch.full((2,), float(rank))
        dist.broadcast(weights, src=0, group=group)
        assert weights[0].item() == 1


if __name__ == "__main__":
    dist.init_process_group("teachdist")
    main(dist.get_rank())
    dist.destroy_process_group()
