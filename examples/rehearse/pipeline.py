"""Pipelines of 8 stages (fewer if there are fewer ranks): 1F1B, or interleaved with two per rank.

With more ranks there are several pipelines side by side, and their gradients are averaged.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleInterleaved1F1B

from model import RATE, loss_of

MICROBATCHES = 16
STEPS = 2


def stages(number):
    """The layers of all stages, equal wherever they are made."""
    torch.manual_seed(1)
    return [nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(number)]


def batch(step, replica, replicas):
    made = torch.Generator().manual_seed(100 + step)
    inputs = torch.randn(replicas * 2 * MICROBATCHES, 16, generator=made)
    targets = torch.randn(replicas * 2 * MICROBATCHES, 16, generator=made)
    mine = slice(replica * 2 * MICROBATCHES, (replica + 1) * 2 * MICROBATCHES)
    return inputs[mine], targets[mine]


def alone(size, interleaved=False):
    """The parameters after training in one process."""
    depth = min(8, size)
    net = nn.Sequential(*stages(depth * (1 + interleaved)))
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
    for step in range(STEPS):
        inputs, targets = batch(step, 0, 1) if size == depth else _all(step, size // depth)
        loss_of(net(inputs), targets).backward()
        optimizer.step()
        optimizer.zero_grad()
    return {name: value.detach().clone() for name, value in net.named_parameters()}


def _all(step, replicas):
    parts = [batch(step, replica, replicas) for replica in range(replicas)]
    return torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts])


def main(interleaved=False):
    dist.init_process_group("gloo")
    size = dist.get_world_size()
    depth = min(8, size)
    mesh = dist.init_device_mesh("cpu", (size // depth, depth), mesh_dim_names=("data", "stage"))
    place, replica = mesh["stage"].get_local_rank(), mesh["data"].get_local_rank()
    numbers = [place, place + depth] if interleaved else [place]
    layers = stages(depth * len(numbers))
    parts = [
        PipelineStage(layers[n], n, len(layers), torch.device("cpu"), group=mesh.get_group("stage"))
        for n in numbers
    ]
    kind = ScheduleInterleaved1F1B if interleaved else Schedule1F1B
    schedule = kind(parts if interleaved else parts[0], MICROBATCHES, loss_fn=loss_of)
    mine = [p for n in numbers for p in layers[n].parameters()]
    optimizer = torch.optim.SGD(mine, lr=RATE)
    for step in range(STEPS):
        inputs, targets = batch(step, replica, size // depth)
        given = {"target": targets} if numbers[-1] == len(layers) - 1 else {}
        schedule.step(*([inputs] if place == 0 else []), **given)
        for parameter in mine:
            dist.all_reduce(parameter.grad, group=mesh.get_group("data"))
            parameter.grad /= size // depth
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()
    return {
        f"{n}.{name}": value.detach().clone()
        for n in numbers
        for name, value in layers[n].named_parameters()
    }


if __name__ == "__main__":
    main()
