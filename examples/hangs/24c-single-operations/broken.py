"""Each begins a send and a receive, and then waits for both. Who could mind?

torchrun --nproc-per-node 2 broken.py
"""

import torch
import torch.distributed as dist


def main(rank):
    mine, theirs = torch.full((5,), float(rank)), torch.zeros(5)
    sending = dist.isend(mine, 1 - rank)
    receiving = dist.irecv(theirs, 1 - rank)
    sending.wait()
    receiving.wait()
    assert theirs[-1].item() == 1 - rank


if __name__ == "__main__":
    dist.init_process_group("teachdist")
    main(dist.get_rank())
    dist.destroy_process_group()
