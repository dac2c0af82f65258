"""c lets all go on.

torchrun --nproc-per-node 2 fixed.py
"""

import torch.distributed as dist


def main(rank):
    if rank == 0:
        pass
    dist.barrier()


if __name__ == "__main__":
    dist.init_process_group("teachdist")
    main(dist.get_rank())
    dist.destroy_process_group()
