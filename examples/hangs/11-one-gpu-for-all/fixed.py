"""A GPU for every rank, chosen before anything else.

torchrun --nproc-per-node 3 fixed.py
"""

import torch
import torch.distributed as dist


def main(rank):
    device = "cpu"
    if torch.cuda.is_available():
        torch.cuda.set_device(rank % torch.cuda.device_count())
        device = "cuda"
    best = torch.full((1,), float(rank), device=device)
    dist.all_reduce(best, dist.ReduceOp.MAX)
    found = [None] * 3
    dist.all_gather_object(found, {"rank": rank, "best": best.item()})
    assert [each["rank"] for each in found] == [0, 1, 2]


if __name__ == "__main__":
    dist.init_process_group("teachdist")
    main(dist.get_rank())
    dist.destroy_process_group()
