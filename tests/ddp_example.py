"""PyTorch's documented example for TORCH_DISTRIBUTED_DEBUG, on the CPU; run by test_ddp.py.

    python ddp_example.py <backend>

The workers are forked, not spawned: that saves importing torch in each.
"""

import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


class TwoLinLayerNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(10, 10, bias=False)
        self.b = torch.nn.Linear(10, 1, bias=False)

    def forward(self, x):
        return self.a(x), self.b(x)


def worker(rank, backend):
    dist.init_process_group(backend, rank=rank, world_size=2)
    model = TwoLinLayerNet()
    ddp_model = torch.nn.parallel.DistributedDataParallel(model)
    inp = torch.randn(10, 10)
    for _ in range(20):
        output = ddp_model(inp)
        loss = output[0] + output[1]
        loss.sum().backward()
    print(f"rank {rank} has trained")
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.start_processes(worker, nprocs=2, args=sys.argv[1:], start_method="fork")
