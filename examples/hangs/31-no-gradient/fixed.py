"""The functional form is an autograd function.

torchrun --nproc-per-node 2 fixed.py
"""

import torch
import torch.distributed as dist
from torch.distributed._functional_collectives import all_gather_single_autograd


def main(rank):
    feature = torch.ones(2, requires_grad=True)
    everybodys = all_gather_single_autograd(feature, 0, dist.group.WORLD)
    loss = everybodys.sum()
    loss.backward()
    assert feature.grad.tolist() == [2, 2]


if __name__ == "__main__":
    dist.init_process_group("teachdist")
    main(dist.get_rank())
    dist.destroy_process_group()
