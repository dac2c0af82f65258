"""The sum is on its way. Is it in the tensor? (poisoning() is the switch for debugging.)

torchrun --nproc-per-node 2 broken.py
"""

import torch
import torch.distributed as dist
from teachdist.diagnose.poison import poisoning


def main(rank):
    gradient = torch.ones(4)
    with poisoning():
        work = dist.all_reduce(gradient, async_op=True)
    norm = gradient.norm()
    work.wait()
    if norm.isnan():
        raise FloatingPointError("the norm is NaN: the gradient was read before work.wait()")


if __name__ == "__main__":
    dist.init_process_group("teachdist")
    main(dist.get_rank())
    dist.destroy_process_group()
