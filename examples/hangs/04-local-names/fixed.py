"""Every rank makes every group: the count that goes into the names is then the same everywhere.

torchrun --nproc-per-node 3 fixed.py
"""

import torch
import torch.distributed as dist


def main(rank):
    total = torch.ones(1)
    for members in ([0, 1], [1, 2]):
        group = dist.new_group(members)
        if rank in members:
            dist.all_reduce(total, group=group)
    assert total.item() in (2, 3)


if __name__ == "__main__":
    dist.init_process_group("teachdist")
    main(dist.get_rank())
    dist.destroy_process_group()
