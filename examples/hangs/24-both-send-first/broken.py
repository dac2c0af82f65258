"""Each is polite and gives before it takes.

torchrun --nproc-per-node 2 broken.py
"""

import torch
import torch.distributed as dist


def main(rank):
    mine, theirs = torch.full((5_000_000,), float(rank)), torch.zeros(5_000_000)
    dist.send(mine, 1 - rank)
    dist.recv(theirs, 1 - rank)
    assert theirs[-1].item() == 1 - rank


if __name__ == "__main__":
    dist.init_process_group("teachdist")
    main(dist.get_rank())
    dist.destroy_process_group()
