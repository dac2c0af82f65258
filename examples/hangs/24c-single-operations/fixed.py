"""batch_isend_irecv begins both at once.

torchrun --nproc-per-node 2 fixed.py
"""

import torch
import torch.distributed as dist


def main(rank):
    mine, theirs = torch.full((5,), float(rank)), torch.zeros(5)
    pair = [dist.P2POp(dist.isend, mine, 1 - rank), dist.P2POp(dist.irecv, theirs, 1 - rank)]
    for work in dist.batch_isend_irecv(pair):
        work.wait()
    assert theirs[-1].item() == 1 - rank


if __name__ == "__main__":
    dist.init_process_group("teachdist")
    main(dist.get_rank())
    dist.destroy_process_group()
