"""PyTorch's documented example of DDP beside RPC."""

import os
from pathlib import Path

import pytest
import torch
import torch.distributed.autograd as dist_autograd
from ranks import BACKENDS, RankPool
from torch import optim
from torch.distributed import rpc
from torch.distributed.optim import DistributedOptimizer
from torch.distributed.rpc import RRef
from torch.nn.parallel import DistributedDataParallel as DDP  # noqa: N817  as documented


@pytest.mark.parametrize("backend", BACKENDS)
def test_documented_example(backend):
    def example():
        rank = int(os.environ["RANK"])
        path = Path(os.environ["RANKS_DIRECTORY"], "rpc")
        options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{path}")
        rpc.init_rpc(f"worker{rank}", rank=rank, world_size=2, rpc_backend_options=options)
        torch.manual_seed(rank)
        my_model, loss_func, target = torch.nn.Linear(3, 3), torch.nn.MSELoss(), torch.zeros(3, 3)

        t1 = torch.rand((3, 3), requires_grad=True)
        t2 = torch.rand((3, 3), requires_grad=True)
        rref = rpc.remote("worker1", torch.add, args=(t1, t2))
        ddp_model = DDP(my_model)
        before = [parameter.tolist() for parameter in ddp_model.parameters()]

        # Setup optimizer
        optimizer_params = [rref]
        for param in ddp_model.parameters():
            optimizer_params.append(RRef(param))  # noqa: PERF401  as documented

        dist_optim = DistributedOptimizer(optim.SGD, optimizer_params, lr=0.05)

        with dist_autograd.context() as context_id:
            pred = ddp_model(rref.to_here())
            loss = loss_func(pred, target)
            dist_autograd.backward(context_id, [loss])
            dist_optim.step(context_id)

        after = [parameter.tolist() for parameter in ddp_model.parameters()]
        rpc.shutdown()
        return before, after

    with RankPool(2, backend) as pool:
        (before, after), (before_1, after_1) = pool.run(example)
    assert before == before_1
    assert after == after_1
    assert before != after
