"""The backend in one file: what it computes is gloo's, and a fault names the rank."""

import inspect
import json
import os
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from ranks import RankDiedError, RankPool, raised, run_ranks

from teachdist import prove, tiny

PIECES = {"chunks": lambda size: size}


@pytest.mark.parametrize("op", ["all_gather", "reduce_scatter", "gather", "scatter", "all_to_all"])
def test_an_algorithm_with_a_chunk_for_each_rank_is_proven(op):
    proof = prove(getattr(tiny, op), op, ranks=range(1, 9))
    assert proof, proof


@pytest.mark.parametrize("op", ["all_reduce", "reduce", "broadcast"])
def test_an_algorithm_that_cuts_the_tensor_is_proven(op):
    proof = prove(getattr(tiny, op), op, ranks=range(1, 9), **PIECES)
    assert proof, proof


def test_all_ranks_add_up_in_one_order():
    assert prove(tiny.all_reduce, "all_reduce", ranks=5, **PIECES).same_bits


# -- what is computed ------------------------------------------------------------------------


def values(rank, *shape, dtype=torch.float32):
    """Small numbers that differ by rank and place, exact in every dtype."""
    count = torch.Size(shape).numel()
    return ((torch.arange(count) * 5 + rank * 3) % 7 + 1).to(dtype).view(shape)


def collectives(group, rank, size):
    """Every collective once or more: name -> the tensors that it leaves on this rank."""
    root, left = size - 1, {}
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8):
        left[f"all_reduce {dtype}"] = tensor = values(rank, 5, 3, dtype=dtype)
        dist.all_reduce(tensor, group=group)
    for name in ("PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"):
        left[name] = tensor = values(rank, 7, dtype=torch.int32)
        dist.all_reduce(tensor, getattr(dist.ReduceOp, name), group)
    for shape in ((), (0,), (1,), (1000,)):
        left[f"all_reduce {shape}"] = tensor = values(rank, *shape)
        dist.all_reduce(tensor, group=group)
    left["broadcast"] = tensor = values(rank, 4, 3)
    dist.broadcast(tensor, group_src=root, group=group)
    tensor = values(rank, 4, 3)
    dist.reduce(tensor, group_dst=root, group=group)
    left["reduce"] = tensor if rank == root else torch.zeros(0)
    blocks = [torch.zeros(2, 3) for _ in range(size)]
    dist.all_gather(blocks, values(rank, 2, 3), group)
    left["all_gather"] = torch.stack(blocks)
    left["all_gather_into_tensor"] = whole = torch.zeros(2 * size, 3)
    dist.all_gather_into_tensor(whole, values(rank, 2, 3), group)
    blocks = [torch.zeros(3) for _ in range(size)] if rank == root else None
    dist.gather(values(rank, 3), blocks, group_dst=root, group=group)
    left["gather"] = torch.stack(blocks or [torch.zeros(0)])
    left["scatter"] = tensor = torch.zeros(3)
    blocks = list(values(rank, size, 3).unbind()) if rank == root else None
    dist.scatter(tensor, blocks, group_src=root, group=group)
    left["reduce_scatter"] = tensor = torch.zeros(3)
    dist.reduce_scatter(tensor, list(values(rank, size, 3).unbind()), group=group)
    left["reduce_scatter_tensor"] = tensor = torch.zeros(2, 3)
    dist.reduce_scatter_tensor(tensor, values(rank, 2 * size, 3), group=group)
    left["all_to_all_single"] = tensor = torch.zeros(2 * size)
    dist.all_to_all_single(tensor, values(rank, 2 * size), group=group)
    splits = [rank + d for d in range(size)]
    left["all_to_all_single by splits"] = tensor = torch.zeros(sum(splits), 2)
    dist.all_to_all_single(tensor, values(rank, sum(splits), 2), splits, splits, group)
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank}, group)
    left["all_gather_object"] = torch.tensor([each["rank"] for each in objects])
    dist.barrier(group)
    return left


def compare(size):
    """What differs between tiny and gloo in a group of the first ranks, by name."""
    from teachdist import tiny  # noqa: F401  it registers itself

    groups = [dist.new_group(range(size), backend=name) for name in ("tiny", "gloo")]
    rank = dist.get_rank()
    if rank >= size:
        return []
    ours, theirs = (collectives(group, rank, size) for group in groups)
    assert dist.get_backend(groups[0]) == "tiny"
    return [name for name in theirs if not torch.equal(ours[name], theirs[name])]


@pytest.fixture(scope="module")
def pool():
    with RankPool(4, backend="gloo") as ranks:
        yield ranks


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_all_collectives_are_those_of_gloo(pool, size):
    assert pool.run(compare, size) == [[]] * 4


def new_group():
    from teachdist import tiny  # noqa: F401

    return dist.new_group(backend="tiny"), dist.get_rank()


def beyond_gloo():
    """What gloo does not do: by the definition."""
    group, rank = new_group()
    average = torch.tensor([float(rank)])
    dist.all_reduce(average, dist.ReduceOp.AVG, group)
    scaled = torch.ones(3)
    dist.all_reduce(scaled, dist._make_nccl_premul_sum(0.5), group)
    strided = torch.zeros(3, 4).t()
    strided += rank
    dist.all_reduce(strided, group=group)
    uneven = [torch.zeros(r) for r in range(4)]
    dist.all_gather(uneven, torch.full((rank,), float(rank)), group)
    inputs = [torch.full((rank + d,), float(rank)) for d in range(4)]
    outputs = [torch.zeros(rank + s) for s in range(4)]
    dist.all_to_all(outputs, inputs, group)
    with dist._coalescing_manager(group):
        many = [torch.ones(2), torch.ones(3)]
        for tensor in many:
            dist.all_reduce(tensor, group=group)
    return (
        average.item(),
        scaled.tolist(),
        strided.unique().tolist(),
        [part.tolist() for part in uneven],
        [part.unique().tolist() for part in outputs],
        [tensor.unique().item() for tensor in many],
    )


def test_what_gloo_does_not_do(pool):
    uneven = [[float(r)] * r for r in range(4)]
    for rank, said in enumerate(pool.run(beyond_gloo)):
        swapped = [[float(s)] if rank + s else [] for s in range(4)]
        assert said == (1.5, [2.0] * 3, [6.0], uneven, swapped, [4.0, 4.0])


def letters():
    """Point to point: tags in the other order, from anybody, to oneself, many at once."""
    group, rank = new_group()
    if rank == 0:
        second, first = torch.zeros(1), torch.zeros(1)
        dist.recv(second, 1, group, tag=2)
        dist.recv(first, 1, group, tag=1)
        senders = [dist.recv(torch.zeros(1), group=group, tag=3) for _ in range(3)]
        posted = [torch.zeros(1) for _ in range(20)]
        for work in [dist.irecv(tensor, 2, group) for tensor in posted]:
            work.wait()
        got = first.item(), second.item(), sorted(senders), [int(tensor) for tensor in posted]
    else:
        if rank == 1:
            dist.send(torch.tensor([1.0]), 0, group, tag=1)
            dist.send(torch.tensor([2.0]), 0, group, tag=2)
        dist.send(torch.zeros(1), 0, group, tag=3)
        for i in range(20) if rank == 2 else ():
            dist.isend(torch.tensor([float(i)]), 0, group).wait()
        got = None
    operations = [
        dist.P2POp(dist.isend, torch.full((100_000,), float(rank)), (rank + 1) % 4, group),
        dist.P2POp(dist.irecv, around := torch.zeros(100_000), (rank - 1) % 4, group),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    return got, around.unique().tolist()


def test_point_to_point(pool):
    got, around = zip(*pool.run(letters), strict=True)
    assert got == ((1.0, 2.0, [1, 2, 3], list(range(20))), None, None, None)
    assert around == ([3.0], [0.0], [1.0], [2.0])


def handles():
    """A handle is not done before all have come; a callback may wait for a later call."""
    group, rank = new_group()
    tensor = torch.ones(2)
    if rank == 0:
        work = dist.all_reduce(tensor, group=group, async_op=True)
        before = work.is_completed()
        dist.send(torch.zeros(1), 1, group)
    else:
        if rank == 1:
            dist.recv(torch.zeros(1), 0, group)
        before = False
        work = dist.all_reduce(tensor, group=group, async_op=True)

    def again(future):
        dist.all_reduce(future.value()[0], group=group)
        return future.value()[0].tolist()

    then = work.get_future().then(again).wait()
    return before, work.wait(), work.is_completed(), then


def test_handles_and_futures(pool):
    assert pool.run(handles) == [(False, True, True, [16.0, 16.0])] * 4


# -- a model ---------------------------------------------------------------------------------


def train(backend):
    from teachdist import tiny  # noqa: F401

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    group = dist.new_group(backend=backend)
    model = torch.nn.parallel.DistributedDataParallel(model, process_group=group)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(1 + dist.get_rank())
    inputs = torch.randn(16, 8)
    losses = []
    for _ in range(10):
        optimizer.zero_grad()
        loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_a_model_has_the_loss_of_gloo(pool):
    for ours, gloos in zip(pool.run(train, "tiny"), pool.run(train, "gloo"), strict=True):
        assert ours[-1] < ours[0] / 2
        assert ours == pytest.approx(gloos, rel=1e-5)


# -- faults ----------------------------------------------------------------------------------


def start():
    from teachdist import tiny  # noqa: F401

    store = dist.FileStore(os.path.join(os.environ["RANKS_DIRECTORY"], "meeting"), 4)
    rank, limit = int(os.environ["RANK"]), timedelta(seconds=30)
    dist.init_process_group("tiny", store=store, rank=rank, world_size=4, timeout=limit)
    return rank


def dies():
    rank = start()
    dist.barrier()
    if rank == 2:
        os._exit(1)
    return raised(dist.all_reduce, torch.ones(4))


def test_a_rank_that_dies_is_named():
    with RankPool(4, backend=None) as ranks:
        outcomes = ranks.outcomes(dies)
    assert isinstance(outcomes.pop(2), RankDiedError)
    for name, text in outcomes:
        assert name == "DistBackendError"
        assert "all_reduce 2 on rank" in text
        assert "rank 2 has died" in text


def wrong():
    """One rank leaves, one comes too late, one calls something else: what the others are told."""
    rank, said, limit = start(), [], timedelta(seconds=2)
    other, late = (dist.new_group(backend="tiny", timeout=limit) for _ in range(2))
    call = dist.all_reduce if rank else dist.broadcast
    said.append(raised(call, torch.ones(8), **({} if rank else {"src": 0}), group=other))
    dist.barrier()
    said.append(raised(dist.recv, torch.ones(1), 3, late) if rank == 0 else None)
    dist.barrier()
    if rank == 3:
        dist.destroy_process_group()
        return said
    said.append(raised(dist.barrier))
    said.append(raised(dist.send, torch.ones(1), 3))
    dist.destroy_process_group()
    return said


def test_whoever_leaves_is_late_or_calls_something_else_is_named():
    outcomes = run_ranks(4, wrong, backend=None)
    assert any("for broadcast" in text for (_, text), *_ in outcomes if text)
    assert "rank 3 has sent nothing within the timeout of 2 s" in outcomes[0][1][1]
    for _, _, (name, text), (_, sent) in outcomes[:3]:
        assert name == "DistBackendError"
        assert "rank 3 has left the group" in text
        assert "rank 3 has left the group" in sent


def test_a_group_that_is_not_whole_says_who_is_missing():
    limit = timedelta(seconds=0.2)
    with pytest.raises(dist.DistBackendError, match=r"ranks \{1, 2\} have not come in 0.2 s"):
        tiny.Tiny(dist.HashStore(), 0, 3, limit)


def test_what_torch_cannot_combine_is_an_error_at_once():
    group = tiny.Tiny(dist.HashStore(), 0, 1, timedelta(seconds=5))
    opts = dist.AllreduceOptions()
    opts.reduceOp = dist.ReduceOp.BAND
    with pytest.raises(RuntimeError, match="bitwise_and"):
        group.allreduce([torch.ones(1)], opts)
    with pytest.raises(NotImplementedError, match="sparse"):
        group.allreduce([torch.ones(1).to_sparse()], opts)
    with pytest.raises(ValueError, match="a tensor for each of 1 ranks, got 2"):
        group.alltoall([torch.ones(1)] * 2, [torch.ones(1)] * 2, opts)
    group.shutdown()


def test_the_notebook_builds_this_file():
    notebook = Path(__file__).parents[1] / "notebooks" / "20-writing-a-backend.ipynb"
    cells = json.loads(notebook.read_text("utf-8"))["cells"]
    built = [c["source"][1:] for c in cells if "tiny" in c["metadata"].get("tags", [])]
    built = [line.rstrip() for lines in built for line in lines if line.strip()]
    source = inspect.getsource(tiny).split('"""', 2)[2]
    assert built == [line for line in source.splitlines() if line.strip()]
