"""DTensor and tensor parallelism on this backend as on gloo."""

import itertools

import pytest
import torch
from both import batch, gradients, mesh, mlp, on_both, parameters, whole
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

LINE = (4,), ("tp",)
GRID = (2, 2), ("dp", "tp")
PLACEMENTS = [Replicate(), Shard(0), Shard(1), Partial()]
NEEDS = {
    ("Shard", "Replicate"): {"all_gather"},
    ("Partial", "Replicate"): {"all_reduce"},
    ("Partial", "Shard"): {"reduce_scatter"},
}


def pairs():
    for before, after in itertools.permutations(PLACEMENTS, 2):
        if not isinstance(after, Partial):
            yield before, after


def local_part(placement, rows):
    """This rank's part of a DTensor with that placement."""
    values = torch.arange(rows * 8.0).reshape(rows, 8)
    return values + batch(0, 1, rows=1) if isinstance(placement, Partial) else values


@pytest.mark.parametrize("rows", [8, 7], ids=["even", "uneven"])
@pytest.mark.parametrize(("before", "after"), list(pairs()), ids=str)
def test_redistribute(before, after, rows):
    def move(backend):
        over = mesh(backend, *LINE)
        if isinstance(before, Partial):
            start = DTensor.from_local(local_part(before, rows), over, [before])
        else:
            start = distribute_tensor(local_part(before, rows), over, [before])
        moved = start.redistribute(placements=[after])
        return moved.to_local(), moved.full_tensor()

    kinds = type(before).__name__, type(after).__name__
    results = on_both(move, uses=NEEDS.get(kinds, set()))
    if not isinstance(before, Partial):
        for _, total in results:
            assert torch.equal(total, local_part(before, rows))


def test_redistribute_over_two_dimensions():
    def move(backend):
        over = mesh(backend, *GRID)
        start = distribute_tensor(torch.arange(35.0).reshape(5, 7), over, [Shard(0), Shard(1)])
        found = []
        for placements in itertools.product(PLACEMENTS[:3], repeat=2):
            moved = start.redistribute(placements=placements)
            assert torch.equal(moved.full_tensor(), torch.arange(35.0).reshape(5, 7))
            found.append(moved.to_local())
        return found

    on_both(move, uses={"all_gather"})


def test_operations_on_dtensors():
    def compute(backend):
        over = mesh(backend, *GRID)
        values = torch.randn(6, 6, generator=torch.Generator().manual_seed(0))
        a = distribute_tensor(values, over, [Shard(0), Shard(1)])
        b = distribute_tensor(values.t().contiguous(), over, [Replicate(), Shard(0)])
        results = (a @ b, a + a.t(), a.sum(), a.mean(0), a.softmax(1), a.max(), torch.cat([a, b]))
        return [whole(each) for each in results]

    on_both(compute, uses={"all_gather", "all_reduce"})


def steps(model, loss_of, count=2):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(count):
        optimizer.zero_grad()
        loss = loss_of(model, step)
        loss.backward()
        optimizer.step()
        losses.append(whole(loss))
    return losses, gradients(model), parameters(model)


def mean_square(model, step):
    return model(batch(step, 6, rank=0)).square().mean()


def test_columns_and_rows():
    def train(backend):
        plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
        return steps(parallelize_module(mlp(6, 8, 4), mesh(backend, *LINE), plan), mean_square)

    results = on_both(train, uses={"all_reduce"})
    torch.testing.assert_close(results[0], steps(mlp(6, 8, 4), mean_square))


def test_sequence_parallel():
    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.norm = torch.nn.LayerNorm(6)
            self.mlp = mlp(6, 8, 6)

        def forward(self, x):
            return self.mlp(self.norm(x))

    def loss(model, step):
        return model(batch(step, 6, rank=0, rows=8).unsqueeze(0)).square().mean()

    def train(backend):
        plan = {
            "norm": SequenceParallel(),
            "mlp": PrepareModuleInput(
                input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)
            ),
            "mlp.0": ColwiseParallel(),
            "mlp.2": RowwiseParallel(),
        }
        return steps(parallelize_module(Block(), mesh(backend, *LINE), plan), loss)

    results = on_both(train, uses={"all_gather", "all_reduce"})
    torch.testing.assert_close(results[0], steps(Block(), loss))


def test_loss_parallel():
    """Cross entropy of logits that are sharded by class."""

    def loss(model, step):
        logits = model(batch(step, 6, rank=0))
        return torch.nn.functional.cross_entropy(logits, torch.tensor([0, 5, 7]))

    def train(backend):
        plan = {"2": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)}
        model = parallelize_module(mlp(6, 8, 8), mesh(backend, *LINE), plan)
        with loss_parallel():
            return steps(model, loss)

    results = on_both(train, uses={"all_reduce"})
    torch.testing.assert_close(results[0], steps(mlp(6, 8, 8), loss))


def test_tensor_parallel_inside_fsdp2():
    def train(backend):
        over = mesh(backend, *GRID)
        plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
        model = parallelize_module(mlp(6, 8, 4), over[f"tp_{backend}"], plan)
        fully_shard(model, mesh=over[f"dp_{backend}"])
        coordinate = over.get_local_rank(0)

        def loss(model, step):
            return model(batch(step, 6, rank=coordinate)).square().mean()

        return steps(model, loss)[1:]

    on_both(train, uses={"all_gather", "all_reduce", "reduce_scatter"})
