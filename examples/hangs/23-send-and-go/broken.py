"""Rank 0 sends a large message and has nothing more to do.

torchrun --nproc-per-node 2 broken.py
"""

import torch
import torch.distributed as dist


def main(rank):
    message = torch.full((3_000_000,), 7.0)
    if rank == 0:
        dist.isend(message, 1)
    else:
        message.zero_()
        dist.recv(message, 0)
        assert message[-1].item() == 7


if __name__ == "__main__":
    dist.init_process_group("teachdist")
    main(dist.get_rank())
    dist.destroy_process_group()
