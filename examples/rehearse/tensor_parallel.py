"""Tensor parallel over 8 ranks (fewer if there are fewer), data parallel over the rest."""

import torch
import torch.distributed as dist
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

from model import RATE, STEPS, batch, loss_of, model


def main():
    dist.init_process_group("gloo")
    size = dist.get_world_size()
    ways = min(8, size)
    mesh = dist.init_device_mesh("cpu", (size // ways, ways), mesh_dim_names=("data", "tensor"))
    replica = mesh["data"].get_local_rank()
    net = parallelize_module(
        model(),
        mesh["tensor"],
        {
            "0": ColwiseParallel(),
            "2": RowwiseParallel(),
            "4": ColwiseParallel(),
            "6": RowwiseParallel(),
        },
    )
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
    for step in range(STEPS):
        inputs, targets = batch(step, replica, size // ways)
        loss_of(net(inputs), targets).backward()
        for parameter in net.parameters():
            gradient = parameter.grad.to_local()
            dist.all_reduce(gradient, group=mesh.get_group("data"))
            gradient /= size // ways
        optimizer.step()
        optimizer.zero_grad()
    whole = {
        name: value.full_tensor().detach() if hasattr(value, "full_tensor") else value.detach()
        for name, value in net.named_parameters()
    }
    dist.destroy_process_group()
    return whole


if __name__ == "__main__":
    main()
