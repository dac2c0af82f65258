"""Each rank gathers what the others have found. On which GPU do they compute?

torchrun --nproc-per-node 3 broken.py
"""

import torch
import torch.distributed as dist


def main(rank):
    device = "cuda" if torch.cuda.is_available() else "cpu"  # "cuda" alone is cuda:0
    best = torch.full((1,), float(rank), device=device)
    dist.all_reduce(best, dist.ReduceOp.MAX)
    found = [None] * 3
    dist.all_gather_object(found, {"rank": rank, "best": best.item()})
    assert [each["rank"] for each in found] == [0, 1, 2]


if __name__ == "__main__":
    dist.init_process_group("teachdist")
    main(dist.get_rank())
    dist.destroy_process_group()
