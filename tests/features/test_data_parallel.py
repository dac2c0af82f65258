"""DistributedDataParallel and ZeroRedundancyOptimizer train on this backend as on gloo."""

import contextlib

import pytest
import torch
import torch.distributed as dist
from both import batch, gradients, mlp, on_both, parameters, world
from ranks import shared_pool
from torch.distributed.algorithms.ddp_comm_hooks import (
    default_hooks,
    post_localSGD_hook,
    powerSGD_hook,
)
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from teachdist.collectives import Send, get


class Forked(torch.nn.Module):
    """Even and odd ranks use different layers, and nobody uses the last."""

    def __init__(self):
        super().__init__()
        self.first = mlp(6, 8)
        self.even, self.odd, self.nobody = mlp(8, 4), mlp(8, 4), mlp(8, 4)

    def forward(self, x):
        return (self.odd if dist.get_rank() % 2 else self.even)(self.first(x))


class Constant(torch.nn.Module):
    """A layer is never used, the same one on all ranks: a graph that stays as it is."""

    def __init__(self):
        super().__init__()
        self.used, self.nobody = mlp(6, 8, 4), mlp(8, 4)

    def forward(self, x):
        return self.used(x)


class Normed(torch.nn.Module):
    """Batch norm has buffers, which rank 0 gives to all before each forward."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(mlp(6, 8), torch.nn.BatchNorm1d(8), mlp(8, 4))

    def forward(self, x):
        return self.layers(x)


def deep():
    return mlp(6, 16, 16, 16, 4)


def train(backend, make, options, prepare=None, steps=3):
    """A few steps of DDP: the loss of each, the parameters and gradients at the end."""
    torch.manual_seed(0)
    model = DistributedDataParallel(make(), process_group=world(backend), **options)
    if prepare is not None:
        prepare(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = model(batch(step, 6)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses, parameters(model), gradients(model), list(model.buffers())


KINDS = {
    "plain": (deep, {}),
    "several buckets": (deep, {"bucket_cap_mb": 0.001}),
    "gradients are views of buckets": (deep, {"gradient_as_bucket_view": True}),
    "find_unused_parameters": (Forked, {"find_unused_parameters": True}),
    "static_graph": (Constant, {"static_graph": True}),
    "buffers": (Normed, {"broadcast_buffers": True}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_ddp(kind):
    on_both(train, *KINDS[kind], uses={"all_reduce", "broadcast"})


def test_small_buckets_are_several():
    def count(cap):
        import teachdist

        model = DistributedDataParallel(deep(), bucket_cap_mb=cap)
        for step in range(2):  # buckets are made anew after the first step
            with teachdist.trace() as record:
                model(batch(step, 6)).sum().backward()
        return sum(call.op == "all_reduce" for call in record.calls)

    pool = shared_pool(4, "teachdist")
    assert pool.run(count, 25) == [1] * 4
    assert all(several > 2 for several in pool.run(count, 0.001))


def power_sgd(model):
    """Its callbacks wait for the futures of further collectives."""
    state = powerSGD_hook.PowerSGDState(
        model.process_group, matrix_approximation_rank=2, start_powerSGD_iter=2
    )
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)


def local_sgd(model):
    state = post_localSGD_hook.PostLocalSGDState(
        model.process_group, model.process_group, start_localSGD_iter=10
    )
    model.register_comm_hook(state, post_localSGD_hook.post_localSGD_hook)


def plain(hook):
    return lambda model: model.register_comm_hook(model.process_group, hook)


HOOKS = {
    "allreduce": plain(default_hooks.allreduce_hook),
    "fp16": plain(default_hooks.fp16_compress_hook),
    "bf16": plain(default_hooks.bf16_compress_hook),
    "fp16 around allreduce": plain(
        default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook)
    ),
    "powerSGD": power_sgd,
    "post-local SGD": local_sgd,
}


@pytest.mark.parametrize("hook", HOOKS)
def test_communication_hook(hook):
    bits = {"fp16": 10, "bf16": 7, "fp16 around allreduce": 10}.get(hook)
    tolerance = {"rtol": 2.0**-bits, "atol": 2.0**-bits / 10} if bits else {}
    on_both(train, deep, {}, HOOKS[hook], 5, uses={"all_reduce"}, **tolerance)


def test_no_sync_sends_nothing_until_the_last_backward():
    def accumulate(backend):
        import teachdist

        model = DistributedDataParallel(deep(), process_group=world(backend))
        with teachdist.trace() as silent, model.no_sync():
            for step in range(3):
                model(batch(step, 6)).square().mean().backward()
        assert not silent.calls
        own = gradients(model)
        model(batch(3, 6)).square().mean().backward()
        return own, gradients(model)

    own = on_both(accumulate, uses={"all_reduce"})
    assert not torch.equal(own[0][0][0], own[1][0][0])  # accumulated apart
    assert torch.equal(own[0][1][0], own[1][1][0])  # and then reduced


def test_join_with_uneven_inputs():
    def uneven(backend):
        model = DistributedDataParallel(deep(), process_group=world(backend))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with Join([model]):
            for step in range(1 + dist.get_rank()):
                optimizer.zero_grad()
                model(batch(step, 6)).square().mean().backward()
                optimizer.step()
        return parameters(model)

    on_both(uneven, uses={"all_reduce", "broadcast"})


@pytest.mark.parametrize("overlap", [False, True], ids=["plain", "as bucket view"])
def test_zero_redundancy_optimizer(overlap):
    def shard(backend):
        group = world(backend)
        model = DistributedDataParallel(
            deep(), process_group=group, gradient_as_bucket_view=overlap
        )
        optimizer = ZeroRedundancyOptimizer(
            model.parameters(),
            optimizer_class=torch.optim.Adam,
            process_group=group,
            parameters_as_bucket_view=overlap,
            lr=0.01,
        )
        for step in range(3):
            optimizer.zero_grad()
            model(batch(step, 6)).square().mean().backward()
            optimizer.step()
        held = sum(len(group["params"]) for group in optimizer.optim.param_groups)
        optimizer.consolidate_state_dict(to=0)
        state = optimizer.state_dict()["state"] if dist.get_rank() == 0 else None
        return parameters(model), state, held

    results = on_both(shard, uses={"broadcast", "all_reduce"})
    assert sum(held for _, _, held in results) == 8  # each rank keeps a part of the state
    assert max(held for _, _, held in results) < 8
    assert results[0][1].keys() == set(range(8))


# The rounds


def rounds_seen(name):
    """The all_reduces of a backward pass with DDP's own hook, and what `name` would have done."""
    import teachdist

    model = DistributedDataParallel(deep(), bucket_cap_mb=0.001)
    with teachdist.use(all_reduce=name) if name else contextlib.nullcontext():
        model(batch(0, 6)).sum().backward()  # buckets are settled
        with teachdist.trace() as record:
            model(batch(1, 6)).sum().backward()
    return [call for call in record.calls if call.op == "all_reduce"]


@pytest.mark.parametrize("name", ["ring", "doubling", "double_tree", "linear"])
def test_ddp_runs_the_rounds_of_the_chosen_algorithm(name):
    algorithm = get("all_reduce", name)
    for rank, calls in enumerate(shared_pool(4, "teachdist").run(rounds_seen, name)):
        assert len(calls) > 2
        for call in calls:
            assert call.algorithm == name
            assert seen(call) == planned(algorithm, rank, call.size)


def test_ddp_runs_different_rounds_by_different_algorithms():
    pool = shared_pool(4, "teachdist")
    by_name = [[seen(c) for c in pool.run(rounds_seen, name)[0]] for name in ("ring", "linear")]
    assert by_name[0] != by_name[1]


def seen(call):
    """Who sent which chunks to whom in each round, and who received; idle rounds left out."""
    rounds = [
        ({p: set(c) for p, (c, _) in r.sends.items()}, {p: set(c) for p, (c, _) in r.takes.items()})
        for r in call.rounds
    ]
    return [each for each in rounds if any(each)]


def planned(algorithm, rank, size):
    """The same from the algorithm itself."""
    rounds = []
    for actions in algorithm.rounds(rank, size):
        sends, takes = {}, {}
        for action in actions:
            into = sends if isinstance(action, Send) else takes
            into.setdefault(action[0], set()).add(action.chunk)
        if sends or takes:
            rounds.append((sends, takes))
    return rounds
