"""One rank speaks for all.

torchrun --nproc-per-node 3 fixed.py
"""

import torch
import torch.distributed as dist


def main(rank):
    value = torch.tensor(float(rank))
    for step in range(2):
        values = [None] * 3 if rank == 0 else None
        dist.gather_object(value.item(), values)
        if rank == 0:
            print(f"step {step}: {values}")
        dist.all_reduce(value)


if __name__ == "__main__":
    dist.init_process_group("teachdist")
    main(dist.get_rank())
    dist.destroy_process_group()
