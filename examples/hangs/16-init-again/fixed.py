"""A prefix for each generation keeps the keys apart, on every backend.

torchrun --nproc-per-node 2 fixed.py
"""

import torch
import torch.distributed as dist


def main(rank):
    store = dist.distributed_c10d._get_default_store()
    for generation in range(2):
        total = torch.ones(1)
        dist.all_reduce(total)
        backend = dist.get_backend()
        dist.destroy_process_group()
        prefixed = dist.PrefixStore(f"generation {generation}", store)
        dist.init_process_group(backend, store=prefixed, rank=rank, world_size=2)
    total = torch.ones(1)
    dist.all_reduce(total)
    assert total.item() == 2


if __name__ == "__main__":
    dist.init_process_group("teachdist")
    main(dist.get_rank())
    dist.destroy_process_group()
