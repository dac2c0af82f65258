"""Each waits for the other to begin.

torchrun --nproc-per-node 2 broken.py
"""

import torch
import torch.distributed as dist


def main(rank):
    mine, theirs = torch.full((5,), float(rank)), torch.zeros(5)
    dist.recv(theirs, 1 - rank)
    dist.send(mine, 1 - rank)


if __name__ == "__main__":
    dist.init_process_group("teachdist")
    main(dist.get_rank())
    dist.destroy_process_group()
