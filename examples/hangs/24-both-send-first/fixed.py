"""One of them receives first.

torchrun --nproc-per-node 2 fixed.py
"""

import torch
import torch.distributed as dist


def main(rank):
    mine, theirs = torch.full((5_000_000,), float(rank)), torch.zeros(5_000_000)
    if rank == 0:
        dist.send(mine, 1)
        dist.recv(theirs, 1)
    else:
        dist.recv(theirs, 0)
        dist.send(mine, 0)
    assert theirs[-1].item() == 1 - rank


if __name__ == "__main__":
    dist.init_process_group("teachdist")
    main(dist.get_rank())
    dist.destroy_process_group()
