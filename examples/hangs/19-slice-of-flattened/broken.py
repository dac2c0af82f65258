"""Two dimensions became one. Can it be sliced with a third?

torchrun --nproc-per-node 4 broken.py
"""

import torch.distributed as dist
from teachdist import init_device_mesh


def main(rank):
    mesh = init_device_mesh("cpu", (2, 2, 1), mesh_dim_names=("dp", "cp", "tp"))
    mesh["dp", "cp"]._flatten("dpcp")
    both = mesh["dpcp", "tp"]
    assert both.mesh_dim_names == ("dpcp", "tp")
    assert both.size() == 4


if __name__ == "__main__":
    dist.init_process_group("teachdist")
    main(dist.get_rank())
    dist.destroy_process_group()
