"""Each rank found a different number of matches. The documentation allows it.

torchrun --nproc-per-node 3 broken.py
"""

import torch
import torch.distributed as dist


def main(rank):
    matches = torch.full((rank + 1,), float(rank))
    everybodys = [torch.zeros(n + 1) for n in range(3)]
    dist.all_gather(everybodys, matches)
    assert [len(part) for part in everybodys] == [1, 2, 3]
    assert everybodys[2].tolist() == [2, 2, 2]


if __name__ == "__main__":
    dist.init_process_group("teachdist")
    main(dist.get_rank())
    dist.destroy_process_group()
