"""isend and irecv to oneself work; a blocking send would wait for itself.

torchrun --nproc-per-node 2 fixed.py
"""

import torch
import torch.distributed as dist


def main(rank):
    mine, echo = torch.full((1,), float(rank)), torch.zeros(1)
    works = [dist.isend(mine, rank), dist.irecv(echo, rank)]
    for work in works:
        work.wait()
    assert echo.item() == rank


if __name__ == "__main__":
    dist.init_process_group("teachdist")
    main(dist.get_rank())
    dist.destroy_process_group()
