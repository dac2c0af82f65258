"""The program starts anew inside the same processes. What does the store remember?

torchrun --nproc-per-node 2 broken.py
"""

import torch
import torch.distributed as dist


def main(rank):
    store = dist.distributed_c10d._get_default_store()
    for _ in range(2):
        total = torch.ones(1)
        dist.all_reduce(total)
        backend = dist.get_backend()
        dist.destroy_process_group()
        dist.init_process_group(backend, store=store, rank=rank, world_size=2)
    total = torch.ones(1)
    dist.all_reduce(total)
    assert total.item() == 2


if __name__ == "__main__":
    dist.init_process_group("teachdist")
    main(dist.get_rank())
    dist.destroy_process_group()
