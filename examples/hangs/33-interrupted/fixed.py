"""What may last for ever gets a limit, and an error that says so.

torchrun --nproc-per-node 3 fixed.py
"""

import threading

import torch.distributed as dist


def main(rank):
    if rank == 0:
        try:
            wait_for_file(0.1)
        except TimeoutError as error:
            print(f"going on without the file: {error}")
    dist.barrier()


def wait_for_file(limit):
    """Stands for something that may last for ever."""
    if not threading.Event().wait(limit):
        raise TimeoutError(f"no file within {limit} s")


if __name__ == "__main__":
    dist.init_process_group("teachdist")
    main(dist.get_rank())
    dist.destroy_process_group()
