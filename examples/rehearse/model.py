"""The model and the data of the training programs, and the same training in one process."""

import torch
from torch import nn

WIDTH, STEPS, ROWS, RATE = 64, 3, 2, 0.05


def model():
    """A network of 13,000 parameters, equal wherever it is made."""
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Linear(16, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 2 * WIDTH), nn.Tanh(),
        nn.Linear(2 * WIDTH, 24), nn.Tanh(), nn.Linear(24, 8),
    )  # fmt: skip


def batch(step, rank=None, size=1, rows=ROWS):
    """The inputs and targets of a step: those of one rank, or of all."""
    made = torch.Generator().manual_seed(100 + step)
    inputs = torch.randn(size * rows, 16, generator=made)
    targets = torch.randn(size * rows, 8, generator=made)
    if rank is None:
        return inputs, targets
    mine = slice(rank * rows, (rank + 1) * rows)
    return inputs[mine], targets[mine]


def loss_of(outputs, targets):
    return nn.functional.mse_loss(outputs, targets)


def alone(size, steps=STEPS, rows=ROWS, momentum=0.0):
    """The parameters after training in one process on the batches of `size` ranks."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE, momentum=momentum)
    for step in range(steps):
        inputs, targets = batch(step, None, size, rows)
        loss_of(net(inputs), targets).backward()
        optimizer.step()
        optimizer.zero_grad()
    return {name: value.detach().clone() for name, value in net.named_parameters()}
