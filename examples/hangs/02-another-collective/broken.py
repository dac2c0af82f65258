"""The root has something to tell, the others want a sum. Who is right?

torchrun --nproc-per-node 3 broken.py
"""

import torch
import torch.distributed as dist


def main(rank):
    loss = torch.full((10,), float(rank))
    if rank == 1:
        dist.broadcast(loss, src=0)
    else:
        dist.all_reduce(loss)


if __name__ == "__main__":
    dist.init_process_group("teachdist")
    main(dist.get_rank())
    dist.destroy_process_group()
