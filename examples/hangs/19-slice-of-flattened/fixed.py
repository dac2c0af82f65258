"""Keep the flattened mesh and ask each for its group.

torchrun --nproc-per-node 4 fixed.py
"""

import torch.distributed as dist
from teachdist import init_device_mesh


def main(rank):
    mesh = init_device_mesh("cpu", (2, 2, 1), mesh_dim_names=("dp", "cp", "tp"))
    flat = mesh["dp", "cp"]._flatten("dpcp")
    assert flat.size() == 4
    assert mesh["tp"].size() == 1


if __name__ == "__main__":
    dist.init_process_group("teachdist")
    main(dist.get_rank())
    dist.destroy_process_group()
