"""all_reduce of sparse COO tensors, whose ranks have entries in different places."""

import pytest
import torch
import torch.distributed as dist
from ranks import on, raised


def entries(rank, shape, count, dtype=torch.float32, dense_dims=0):
    """A sparse tensor with `count` entries that depend on the rank, some of them twice."""
    generator = torch.Generator().manual_seed(rank)
    sparse = shape[: len(shape) - dense_dims]
    indices = torch.stack([torch.randint(n, (count,), generator=generator) for n in sparse])
    values = torch.randint(1, 5, (count, *shape[len(sparse) :]), generator=generator).to(dtype)
    return torch.sparse_coo_tensor(indices, values, shape, check_invariants=True)


CASES = {
    "plain": {"shape": (4, 3), "counts": (3, 5, 1)},
    "a rank has none": {"shape": (4, 3), "counts": (3, 0, 2)},
    "nobody has any": {"shape": (4, 3), "counts": (0, 0, 0)},
    "entries twice": {"shape": (2,), "counts": (5, 4, 3)},
    "rows are dense": {"shape": (5, 2), "counts": (2, 3, 1), "dense_dims": 1},
    "integers": {"shape": (4,), "counts": (1, 2, 3), "dtype": torch.int64},
    "double": {"shape": (3, 2, 2), "counts": (4, 4, 4), "dtype": torch.float64},
}


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_sum(case, asynchronous):
    how = dict(CASES[case])
    counts = how.pop("counts")

    def job():
        x = entries(dist.get_rank(), count=counts[dist.get_rank()], **how)
        work = dist.all_reduce(x, async_op=asynchronous)
        if work is not None:
            work.wait()
        assert x.is_sparse
        return x.to_dense()

    wanted = sum(entries(rank, count=counts[rank], **how).to_dense() for rank in range(3))
    for total in on(3, job):
        assert torch.equal(total, wanted)


def test_the_average():
    def job():
        x = torch.sparse_coo_tensor([[dist.get_rank()]], [6.0], (3,))
        dist.all_reduce(x, dist.ReduceOp.AVG)
        return x.to_dense().tolist()

    assert on(3, job) == [[2, 2, 2]] * 3


@pytest.mark.parametrize("op", ["MIN", "MAX", "PRODUCT", "BAND"])
def test_only_sums_are_defined(op):
    """What is not stored counts as 0, which only a sum leaves alone."""

    def job():
        x = torch.sparse_coo_tensor([[0]], [1], (3,))
        error = raised(dist.all_reduce, x, getattr(dist.ReduceOp, op))
        dist.barrier()  # the group is as before
        return error

    for kind, text in on(2, job):
        assert kind == "ValueError"
        assert f"all_reduce(int64[3], sparse, {op}): only sums" in text
        assert "use to_dense()" in text


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("broadcast", lambda x: dist.broadcast(x, 0)),
        ("reduce", lambda x: dist.reduce(x, 0)),
        ("allgather", lambda x: dist.all_gather([torch.zeros(3)] * 2, x)),
    ],
)
def test_other_collectives_want_dense_tensors(name, call):
    def job():
        x = torch.sparse_coo_tensor([[0]], [1.0], (3,))
        error = raised(call, x)
        dist.barrier()
        return error

    for kind, text in on(2, job):
        assert kind == "NotImplementedError"  # from torch, whose dispatcher knows no such call
        assert f"c10d::{name}_' with arguments from the 'SparseCPU' backend" in text


def test_shapes_must_agree():
    def job():
        from teachdist.backend import recover

        x = torch.sparse_coo_tensor([[0]], [1.0], (3 + dist.get_rank(),))
        error = raised(dist.all_reduce, x)
        recover()
        return error

    for _, text in on(2, job):
        assert "all_reduce(float32[3], sparse, SUM)" in text
        assert "all_reduce(float32[4], sparse, SUM)" in text
