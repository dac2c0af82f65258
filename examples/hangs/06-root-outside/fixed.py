"""src counts the ranks of the job, group_src those of the group.

torchrun --nproc-per-node 3 fixed.py
"""

import torch
import torch.distributed as dist


def main(rank):
    group = dist.new_group([1, 2])
    if rank != 0:
        weights = torch.full((2,), float(rank))
        dist.broadcast(weights, group_src=0, group=group)
        assert weights[0].item() == 1


if __name__ == "__main__":
    dist.init_process_group("teachdist")
    main(dist.get_rank())
    dist.destroy_process_group()
