"""Without values: shapes and predicted times of models that would not fit."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from teachdist import rehearse


def test_a_sharded_model_that_would_not_fit():
    def program():
        mesh = dist.init_device_mesh("cpu", (4, 2), mesh_dim_names=("hosts", "ranks"))
        net = nn.Sequential(*[nn.Linear(8192, 8192, bias=False) for _ in range(2)])
        for layer in net:
            fully_shard(layer, mesh=mesh)
        fully_shard(net, mesh=mesh)
        net(torch.randn(64, 8192)).square().mean().backward()
        return [tuple(p.to_local().shape) for p in net.parameters()]

    answer = rehearse(program, ranks=8, topology="4 hosts x 2", clock="modelled", values=False)
    assert answer.results == [[(4096, 8192)] * 2] * 8
    assert "memory of tensors at their peak" in str(answer)
    # Forward and backward: 6 products of 64 x 8192 x 8192, at half of 67 TFLOP/s, at the least.
    assert 5 * 2 * 64 * 8192**2 / 33.5e12 < answer.clocks[0].spent["compute"] < 0.1


def test_ddp_cannot():
    def program():
        DistributedDataParallel(nn.Linear(2, 2))

    with pytest.raises(rehearse.RehearsalError, match="cannot run with values=False"):
        rehearse(program, ranks=2, clock="modelled", values=False)


def test_a_value_that_is_looked_at_is_named():
    def program():
        return torch.ones(2).sum().item()

    with pytest.raises(rehearse.RehearsalError, match="the program looks at a value"):
        rehearse(program, ranks=2, clock="modelled", values=False)
