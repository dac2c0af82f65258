"""The system ran out of memory and chose a victim.

torchrun --nproc-per-node 3 --monitor-interval 3 broken.py

(At its usual interval torchrun often ends the other ranks before they can say what they saw.)
"""

import os
import signal

import torch
import torch.distributed as dist


def main(rank):
    total = torch.ones(4)
    dist.all_reduce(total)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(total)


if __name__ == "__main__":
    dist.init_process_group("teachdist")
    main(dist.get_rank())
    dist.destroy_process_group()
