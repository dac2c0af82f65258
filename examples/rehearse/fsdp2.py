"""Fully sharded data parallel (FSDP2): each rank keeps a part of every parameter."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

from model import RATE, STEPS, batch, loss_of, model


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    net = model()
    mesh = dist.init_device_mesh("cpu", (size,))
    for layer in net:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(net, mesh=mesh)
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
    for step in range(STEPS):
        inputs, targets = batch(step, rank, size)
        loss_of(net(inputs), targets).backward()
        optimizer.step()
        optimizer.zero_grad()
    whole = {name: value.full_tensor().detach() for name, value in net.named_parameters()}
    dist.destroy_process_group()
    return whole


if __name__ == "__main__":
    main()
