"""Compiled programs: the same values as without, and no frame of ours among what was compiled."""

import pytest
import torch
import torch.distributed as dist
from ranks import on
from torch import nn


def mine():
    return torch.arange(4.0) + dist.get_rank()


def all_reduce(x, asynchronous):
    return settled(dist.all_reduce(x, async_op=asynchronous), x)


def reduce(x, asynchronous):
    return settled(dist.reduce(x, 0, async_op=asynchronous), x)


def broadcast(x, asynchronous):
    return settled(dist.broadcast(x, 1, async_op=asynchronous), x)


def all_gather(x, asynchronous):
    out = [torch.zeros(4), torch.zeros(4)]
    return torch.cat(settled(dist.all_gather(out, x, async_op=asynchronous), out))


def all_gather_single(x, asynchronous):
    out = torch.zeros(8)
    return settled(dist.all_gather_single(out, x, async_op=asynchronous), out)


def reduce_scatter(x, asynchronous):
    out = torch.zeros(2)
    return settled(dist.reduce_scatter(out, list(x.chunk(2)), async_op=asynchronous), out)


def reduce_scatter_single(x, asynchronous):
    out = torch.zeros(2)
    return settled(dist.reduce_scatter_single(out, x, async_op=asynchronous), out)


def all_to_all(x, asynchronous):
    out = [torch.zeros(2), torch.zeros(2)]
    return settled(dist.all_to_all(out, list(x.chunk(2)), async_op=asynchronous), out[1])


def all_to_all_single(x, asynchronous):
    out = torch.zeros(4)
    return settled(dist.all_to_all_single(out, x, async_op=asynchronous), out)


def scatter(x, asynchronous):
    out = torch.zeros(2)
    parts = list(x.chunk(2)) if dist.get_rank() == 0 else None
    return settled(dist.scatter(out, parts, 0, async_op=asynchronous), out)


def gather(x, asynchronous):
    out = [torch.zeros(4), torch.zeros(4)] if dist.get_rank() == 0 else None
    work = dist.gather(x, out, 0, async_op=asynchronous)
    return settled(work, x if out is None else out[1])


def barrier(x, asynchronous):
    return settled(dist.barrier(async_op=asynchronous), x)


def messages(x, asynchronous):
    """To the other rank and back."""
    other, out = 1 - dist.get_rank(), torch.zeros(4)
    if asynchronous:
        works = [dist.isend(x, other), dist.irecv(out, other)]
        for work in works:
            work.wait()
    elif dist.get_rank() == 0:
        dist.send(x, other)
        dist.recv(out, other)
    else:
        dist.recv(out, other)
        dist.send(x, other)
    return out


def settled(work, out):
    if work is not None:
        work.wait()
    return out


OPS = (
    all_reduce, reduce, broadcast, all_gather, all_gather_single, reduce_scatter,
    reduce_scatter_single, all_to_all, all_to_all_single, scatter, gather, barrier, messages,
)  # fmt: skip


def ours():
    """The files of the package of which Dynamo has compiled a frame."""
    from torch._dynamo.utils import get_compilation_metrics

    files = {metrics.co_filename or "" for metrics in get_compilation_metrics()}
    return {file for file in files if "/teachdist/" in file}


@pytest.mark.parametrize("how", ["eager", "aot_eager"])
def test_each_operation(how):
    def compare():
        failed = set()
        for op in OPS:
            for asynchronous in (False, True):
                torch._dynamo.reset()

                def body(x, op=op, asynchronous=asynchronous):
                    return op(x * 2, asynchronous) + 1

                plain = body(mine())
                compiled = torch.compile(body, backend=how)
                for _ in range(2):
                    if not torch.equal(compiled(mine()), plain):
                        failed.add((op.__name__, asynchronous))
        return failed, ours()

    assert on(2, compare) == [(set(), set())] * 2


def model():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def ddp_outside(make, how):
    return torch.compile(nn.parallel.DistributedDataParallel(make()), backend=how)


def ddp_inside(make, how):
    return nn.parallel.DistributedDataParallel(torch.compile(make(), backend=how))


def fsdp1(make, how):
    from torch.distributed.fsdp import FullyShardedDataParallel

    whole = FullyShardedDataParallel(make(), device_id=torch.device("cpu"), use_orig_params=True)
    return torch.compile(whole, backend=how)


def fsdp2(make, how):
    from torch.distributed.fsdp import fully_shard

    whole = make()
    for layer in (whole[0], whole[2], whole):
        fully_shard(layer)
    return torch.compile(whole, backend=how)


def tensor_parallel(make, how):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    mesh = init_device_mesh("cpu", (2,))
    whole = parallelize_module(make(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    return torch.compile(whole, backend=how)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("how", ["eager", "aot_eager"])
@pytest.mark.parametrize("wrap", [ddp_outside, ddp_inside, fsdp1, fsdp2, tensor_parallel])
def test_models(wrap, how):
    def train():
        import warnings

        warnings.simplefilter("ignore")
        torch._dynamo.reset()
        alone, data = model(), torch.arange(8.0).reshape(2, 4) / 8
        whole = wrap(model, how)
        losses = []
        for each in (alone, whole):
            optimiser = torch.optim.SGD(each.parameters(), 0.1)
            for _ in range(3):
                loss = each(data).square().sum()
                loss.backward()
                optimiser.step()
                optimiser.zero_grad()
            losses.append(loss.item())
        return losses, ours()

    for (expected, got), compiled in on(2, train):
        assert got == pytest.approx(expected, rel=1e-5)
        assert compiled == set()
