"""A path of its own for every run.

torchrun --nproc-per-node 2 fixed.py
"""

import os
import tempfile

import torch.distributed as dist
from teachdist.stores import FileStore


def main(rank):
    if rank == 0:
        with tempfile.TemporaryDirectory() as folder:
            crash(f"{folder}/meeting-1")
            FileStore(f"{folder}/meeting-2", 2)
    dist.barrier()


def crash(path):
    """Another run on another file, which ends without a word."""
    pid = os.fork()
    if pid == 0:
        store = FileStore(path, 2)
        store.set("address", "of a dead process")
        os._exit(1)
    os.waitpid(pid, 0)


if __name__ == "__main__":
    dist.init_process_group("teachdist")
    main(dist.get_rank())
    dist.destroy_process_group()
