"""Three ranks print what they do. In which order do you read it?

torchrun --nproc-per-node 3 broken.py
"""

import torch
import torch.distributed as dist


def main(rank):
    value = torch.tensor(float(rank))
    for step in range(2):
        print(f"step {step}: {value.item():g}")
        dist.all_reduce(value)


if __name__ == "__main__":
    dist.init_process_group("teachdist")
    main(dist.get_rank())
    dist.destroy_process_group()
