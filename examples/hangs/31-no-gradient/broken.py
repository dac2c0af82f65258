"""The loss is made of everybody's features.

torchrun --nproc-per-node 2 broken.py
"""

import torch
import torch.distributed as dist


def main(rank):
    feature = torch.ones(2, requires_grad=True)
    everybodys = [torch.zeros(2), torch.zeros(2)]
    dist.all_gather(everybodys, feature)
    loss = torch.stack(everybodys).sum()
    loss.backward()


if __name__ == "__main__":
    dist.init_process_group("teachdist")
    main(dist.get_rank())
    dist.destroy_process_group()
