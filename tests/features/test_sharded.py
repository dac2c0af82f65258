"""FSDP2 and HSDP: parameters in shards, on this backend as on gloo."""

import pytest
import torch
import torch.distributed as dist
from both import batch, gradients, mesh, mlp, on_both, parameters
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.utils import clip_grad_norm_


def sharded(backend, shape, names, **options):
    """A network whose layers and whose whole are sharded over a mesh."""
    over = mesh(backend, shape, names)
    model = mlp(6, 10, 10, 4)  # 10 rows for 4 ranks: uneven shards
    for layer in model:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, mesh=over, **options)
    return fully_shard(model, mesh=over, **options)


def train(backend, shape, names, options, steps=3):
    model = sharded(backend, shape, names, **options)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses, norms = [], []
    for step in range(steps):
        optimizer.zero_grad()
        loss = model(batch(step, 6)).float().square().mean()
        loss.backward()
        norms.append(clip_grad_norm_(model.parameters(), 0.5).full_tensor())
        optimizer.step()
        losses.append(loss.detach())
    return losses, norms, parameters(model), gradients(model)


FSDP = (4,), ("dp",)
HSDP = (2, 2), ("replicate", "shard")
KINDS = {
    "plain": (*FSDP, {}),
    "kept after forward": (*FSDP, {"reshard_after_forward": False}),
    "mixed precision": (
        *FSDP,
        {"mp_policy": MixedPrecisionPolicy(torch.bfloat16, torch.float32)},
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_fsdp2(kind):
    on_both(train, *KINDS[kind], uses={"all_gather", "reduce_scatter"})


def test_hsdp():
    """Sharded over one dimension of the mesh, replicated over the other."""
    results = on_both(train, *HSDP, {}, uses={"all_gather", "reduce_scatter", "all_reduce"})
    for _, _, trained, _ in results[1:]:
        torch.testing.assert_close(trained, results[0][2], rtol=0, atol=0)


def test_gradients_are_those_of_one_process_with_all_data():
    def compare(backend):
        model = sharded(backend, *HSDP)
        model(batch(0, 6)).square().mean().backward()
        alone = mlp(6, 10, 10, 4)
        for rank in range(dist.get_world_size()):
            (alone(batch(0, 6, rank)).square().mean() / dist.get_world_size()).backward()
        torch.testing.assert_close(gradients(model), gradients(alone))

    on_both(compare, uses={"all_gather", "reduce_scatter"})


def test_accumulation_without_reducing():
    def accumulate(backend):
        model = sharded(backend, *FSDP)
        model.set_requires_gradient_sync(False)
        model(batch(0, 6)).square().mean().backward()
        unreduced = sum(p.grad is not None for p in model.parameters())
        model.set_requires_gradient_sync(True)
        model(batch(1, 6)).square().mean().backward()
        return unreduced, gradients(model)

    for unreduced, _ in on_both(accumulate, uses={"reduce_scatter"}):
        assert unreduced == 0


def test_whole_state_dict():
    def gather(backend):
        model = sharded(backend, *FSDP)
        return get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))

    for state in on_both(gather, uses={"all_gather"}):
        torch.testing.assert_close(state, dict(mlp(6, 10, 10, 4).state_dict()))
