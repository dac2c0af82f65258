"""As many as are started.

torchrun --nproc-per-node 2 fixed.py
"""

from datetime import timedelta

import torch.distributed as dist
from teachdist.stores import TCPStore


def main(rank):
    port = [0]
    if rank == 0:
        port = [free_port()]
    dist.broadcast_object_list(port)
    TCPStore("127.0.0.1", port[0], 2, rank == 0, timedelta(seconds=5))


def free_port():
    """A port that nobody uses now."""
    probe = TCPStore("127.0.0.1", 0, 1, True, wait_for_workers=False)
    return probe.port


if __name__ == "__main__":
    dist.init_process_group("teachdist")
    main(dist.get_rank())
    dist.destroy_process_group()
