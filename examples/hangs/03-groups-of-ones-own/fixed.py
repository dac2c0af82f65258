"""Every rank makes every group, in the same order, also those that it is not in.

torchrun --nproc-per-node 4 fixed.py
"""

import torch
import torch.distributed as dist


def main(rank):
    groups = [dist.new_group(ranks) for ranks in ([0, 1], [2, 3])]
    total = torch.ones(1)
    dist.all_reduce(total, group=groups[rank // 2])
    assert total.item() == 2


if __name__ == "__main__":
    dist.init_process_group("teachdist")
    main(dist.get_rank())
    dist.destroy_process_group()
