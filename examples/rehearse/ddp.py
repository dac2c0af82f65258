"""DistributedDataParallel: two batches a step, their gradients added up; uneven ends by join."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from model import RATE, STEPS, batch, loss_of, model


def main(join=True):
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    net = DistributedDataParallel(model())
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
    for step in range(STEPS):
        inputs, targets = batch(step, rank, size)
        half = len(inputs) // 2
        with net.no_sync():
            (loss_of(net(inputs[:half]), targets[:half]) / 2).backward()
        (loss_of(net(inputs[half:]), targets[half:]) / 2).backward()
        optimizer.step()
        optimizer.zero_grad()
    trained = {name: value.detach().clone() for name, value in net.module.named_parameters()}
    if join:  # the first rank has one batch more than the others
        with net.join():
            for step in range(1 + (rank == 0)):
                inputs, targets = batch(step, rank, size)
                loss_of(net(inputs), targets).backward()
    dist.destroy_process_group()
    return trained


if __name__ == "__main__":
    main()
