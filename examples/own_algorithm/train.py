"""A data-parallel training like any other; run it with torchrun.

Each rank sees its own part of the data, DistributedDataParallel averages the gradients.
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("teachdist")
rank, world_size = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)
inputs = torch.randn(256, 8)
targets = inputs @ torch.linspace(-1, 1, 8)
inputs, targets = inputs[rank::world_size], targets[rank::world_size]

model = DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
for _ in range(40):
    loss = (model(inputs).squeeze(1) - targets).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

print(f"rank {rank} of {world_size}: loss {loss.item():.4f}", flush=True)
dist.destroy_process_group()
