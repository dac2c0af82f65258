"""Members alone make their groups, as use_local_synchronization allows. Do they agree on the name?

torchrun --nproc-per-node 3 broken.py
"""

import torch
import torch.distributed as dist


def main(rank):
    total = torch.ones(1)
    for members in ([0, 1], [1, 2]):
        if rank in members:
            group = dist.new_group(members, use_local_synchronization=True)
            dist.all_reduce(total, group=group)
    assert total.item() in (2, 3)


if __name__ == "__main__":
    dist.init_process_group("teachdist")
    main(dist.get_rank())
    dist.destroy_process_group()
