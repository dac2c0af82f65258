"""Rank 0 waits for a file that never comes. You press Ctrl-C, or the stop button.

torchrun --nproc-per-node 3 broken.py
"""

import threading

import torch.distributed as dist


def main(rank):
    if rank == 0:
        wait_for_file()
    dist.barrier()


def wait_for_file():
    """Stands for something that may last for ever."""
    threading.Event().wait()


if __name__ == "__main__":
    dist.init_process_group("teachdist")
    main(dist.get_rank())
    dist.destroy_process_group()
