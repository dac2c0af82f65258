"""ZeroRedundancyOptimizer: each rank keeps the optimizer's state of a part of the parameters."""

import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from model import RATE, STEPS, batch, loss_of, model


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    net = DistributedDataParallel(model())
    optimizer = ZeroRedundancyOptimizer(net.parameters(), torch.optim.SGD, lr=RATE, momentum=0.9)
    for step in range(STEPS):
        inputs, targets = batch(step, rank, size)
        loss_of(net(inputs), targets).backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()
    return {name: value.detach().clone() for name, value in net.module.named_parameters()}


if __name__ == "__main__":
    main()
