"""Wait first.

torchrun --nproc-per-node 2 fixed.py
"""

import torch
import torch.distributed as dist


def main(rank):
    gradient = torch.ones(4)
    work = dist.all_reduce(gradient, async_op=True)
    work.wait()
    assert gradient.norm() == 4


if __name__ == "__main__":
    dist.init_process_group("teachdist")
    main(dist.get_rank())
    dist.destroy_process_group()
