"""Functional collectives, eager and compiled, on this backend as on gloo."""

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from both import batch, mesh, on_both, world
from torch.distributed.tensor import DTensor, Shard


def all_reduce(x, group):
    return functional.all_reduce(x, "sum", group)


def all_gather(x, group):
    return functional.all_gather_tensor(x, 0, group)


def all_gather_columns(x, group):
    return functional.all_gather_tensor(x, 1, group)


def reduce_scatter(x, group):
    return functional.reduce_scatter_tensor(x, "sum", 0, group)


def all_to_all(x, group):
    splits = [x.shape[0] // dist.get_world_size(group)] * dist.get_world_size(group)
    return functional.all_to_all_single(x, splits, splits, group)


def broadcast(x, group):
    return functional.broadcast(x, 1, group)


def permute(x, group):
    size = dist.get_world_size(group)
    return functional.permute_tensor(x.flatten(), [*range(1, size), 0], group)


def several(x, group):
    return torch.cat(functional.all_reduce_coalesced([x, 2 * x], "max", group))


def several_gathered(x, group):
    return torch.cat(functional.all_gather_into_tensor_coalesced([x, -x], group))


def several_scattered(x, group):
    return torch.cat(functional.reduce_scatter_tensor_coalesced([x, -x], "sum", [0, 0], group))


CALLS = {
    all_reduce: "all_reduce",
    all_gather: "all_gather",
    all_gather_columns: "all_gather",
    reduce_scatter: "reduce_scatter",
    all_to_all: "all_to_all",
    broadcast: "broadcast",
    permute: "all_to_all",
    several: "all_reduce",
    several_gathered: "all_gather",
    several_scattered: "reduce_scatter",
}


def surrounded(call, backend):
    """The call between other computations, so that a compiler has something to move."""
    group = world(backend)

    def compute(x):
        return call(x * 2, group).relu() - 1

    return compute


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
def test_eager(call):
    on_both(lambda backend: surrounded(call, backend)(batch(0, 5, rows=8)), uses={CALLS[call]})


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
def test_compiled(call):
    def compute(backend):
        eager = surrounded(call, backend)
        compiled = torch.compile(eager, backend="aot_eager", fullgraph=True)
        x = batch(0, 5, rows=8)
        result = compiled(x)
        torch.testing.assert_close(result, eager(x))
        return result

    on_both(compute, uses={CALLS[call]}, n=2)


def test_result_is_waited_for_when_it_is_used():
    def late(backend):
        pending = functional.all_reduce(batch(0, 5), "sum", world(backend))
        assert isinstance(pending, functional.AsyncCollectiveTensor)
        other = functional.all_reduce(torch.ones(2), "sum", world(backend))
        return pending + 1, functional.wait_tensor(other)

    for _, summed in on_both(late, uses={"all_reduce"}):
        assert summed.tolist() == [4, 4]


def test_plain_collectives_are_compiled_as_functional_ones():
    def compute(backend):
        group = world(backend)

        @torch.compile(backend="aot_eager", fullgraph=True)
        def step(x):
            whole = torch.empty(2 * x.shape[0])
            dist.all_gather_into_tensor(whole, x * 2, group=group)
            dist.all_reduce(x, group=group)
            return whole.sum() + x

        return step(batch(0, 1)[:, 0])

    on_both(compute, uses={"all_gather", "all_reduce"}, n=2)


def test_gradients_pass_through_compiled_dtensors():
    def compute(backend):
        over = mesh(backend, (2,), ("dp",))
        weight = DTensor.from_local(batch(0, 5), over, [Shard(0)]).requires_grad_()

        @torch.compile(backend="aot_eager", fullgraph=True)
        def loss(weight):
            return (weight * weight).sum().full_tensor()

        loss(weight).backward()
        return weight.grad.to_local()

    on_both(compute, uses={"all_reduce"}, n=2)
