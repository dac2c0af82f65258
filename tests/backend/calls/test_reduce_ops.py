"""The reduce operations, as torch.distributed documents them, and what is undefined."""

import numpy as np
import pytest
import torch
import torch.distributed as dist
from ranks import RankPool, on, raised
from values import DTYPES, UNSIGNED, defined, make, reduced, same

from teachdist.backend.calls.reduce_ops import reducer

NAMES = ["SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"]


def test_the_attributes():
    assert all(hasattr(dist.ReduceOp, name) for name in [*NAMES, "AVG", "PREMUL_SUM"])
    assert not hasattr(dist.ReduceOp, "__members__")


def test_deprecated_reduce_op():
    with pytest.warns(FutureWarning, match="ReduceOp"):
        assert dist.reduce_op.SUM == dist.ReduceOp.SUM
    for name in ("PRODUCT", "MIN", "MAX"):
        with pytest.warns(FutureWarning):
            assert getattr(dist.reduce_op, name) == getattr(dist.ReduceOp, name)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("SUM", [4, 6]),
        ("PRODUCT", [3, 8]),
        ("MIN", [1, 2]),
        ("MAX", [3, 4]),
        ("BAND", [1, 0]),
        ("BOR", [3, 6]),
        ("BXOR", [2, 6]),
    ],
)
def test_on_integers(name, wanted):
    def job():
        tensor = torch.tensor([1, 2]) + 2 * dist.get_rank()
        dist.all_reduce(tensor, op=getattr(dist.ReduceOp, name))
        return tensor.tolist()

    assert on(2, job) == [wanted] * 2


def test_avg():
    """An average of fractions and of whole numbers."""

    def job():
        rank = dist.get_rank()
        fractions, whole = torch.tensor([1.0, 2.0]) + 2 * rank, torch.tensor([1, 2]) + 3 * rank
        for tensor in (fractions, whole):
            dist.all_reduce(tensor, op=dist.ReduceOp.AVG)
        scattered = torch.zeros(1)
        dist.reduce_scatter_single(
            scattered, torch.tensor([1.0, 2.0]) + 2 * rank, dist.ReduceOp.AVG
        )
        return fractions.tolist(), whole.tolist(), scattered.item()

    assert on(2, job) == [([2, 3], [2, 3], 2), ([2, 3], [2, 3], 3)]


def test_avg_divides_first():
    """As documented: so that the sum of large half-precision numbers stays finite."""

    def job():
        tensor = torch.full((2,), 60000.0, dtype=torch.float16)
        dist.all_reduce(tensor, op=dist.ReduceOp.AVG)
        return tensor.tolist()

    assert on(2, job) == [[60000, 60000]] * 2


@pytest.mark.skipif(not hasattr(dist, "_make_nccl_premul_sum"), reason="torch without NCCL")
def test_premul_sum():
    """The input is multiplied before the sum, by a number or a tensor; inputs stay as they are."""

    def job():
        rank = dist.get_rank()
        by_number, by_tensor = (torch.tensor([1.0, 2.0]) + 2 * rank for _ in range(2))
        dist.all_reduce(by_number, op=dist._make_nccl_premul_sum(2.0))
        dist.all_reduce(by_tensor, op=dist._make_nccl_premul_sum(torch.tensor([0.5])))
        given, output = torch.tensor([1.0, 2.0]) + 2 * rank, torch.zeros(1)
        dist.reduce_scatter_single(output, given, op=dist._make_nccl_premul_sum(2.0))
        return by_number.tolist(), by_tensor.tolist(), output.item(), given.tolist()

    assert on(2, job) == [([8, 12], [2, 3], 8, [1, 2]), ([8, 12], [2, 3], 12, [3, 4])]


@pytest.mark.skipif(not hasattr(dist, "_make_nccl_premul_sum"), reason="torch without NCCL")
def test_premul_sum_with_factors_that_differ():
    def job():
        factor = [2.0, 3.0][dist.get_rank()]
        return raised(dist.all_reduce, torch.ones(2), op=dist._make_nccl_premul_sum(factor))

    with RankPool(2, "teachdist") as pool:
        told = [text for one in pool.run(job) if one is not None for text in [one[1]]]
    assert any("PREMUL_SUM(2)" in text and "PREMUL_SUM(3)" in text for text in told)


def test_premul_sum_needs_a_factor():
    with pytest.raises(ValueError, match="PREMUL_SUM needs its factor"):
        reducer(dist.ReduceOp.PREMUL_SUM, torch.float32, "all_reduce()")


UNDEFINED = [
    ("MAX", torch.complex64, "MAX of complex64 is undefined"),
    ("MIN", torch.complex128, "MIN of complex128 is undefined"),
    ("PRODUCT", torch.complex64, "PRODUCT of complex64 is undefined"),
    ("BAND", torch.float32, "BAND is defined on integers and bool, not on float32"),
    ("BXOR", torch.complex64, "BXOR is defined on integers and bool"),
    ("AVG", torch.bool, "AVG of bool is undefined"),
]


@pytest.mark.parametrize(("name", "dtype", "said"), UNDEFINED)
def test_what_is_undefined(name, dtype, said):
    """An error at the caller that names the operation; nothing was sent and the group goes on."""

    def job():
        tensor = torch.ones(2, dtype=dtype)
        try:
            dist.reduce(tensor, dst=0, op=getattr(dist.ReduceOp, name))
            error = None
        except ValueError as wrong:
            error = str(wrong)
        dist.barrier()
        return error

    for error in on(2, job):
        assert said in error
        assert "reduce(" in error


def test_complex_maximum_is_refused_by_all_reduce():
    def job():
        try:
            dist.all_reduce(torch.ones(2, dtype=torch.complex64), op=dist.ReduceOp.MAX)
        except ValueError as wrong:
            return str(wrong)
        return None

    assert all("MAX" in error for error in on(2, job))


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("name", [*NAMES, "AVG"])
def test_combine_on_every_dtype(name):
    """Two operands, against arithmetic in plain Python."""
    for dtype in DTYPES:
        if not defined(name, dtype):
            continue
        left, right = (make((6,), dtype, "plain", seed) for seed in (0, 1))
        how = reducer(getattr(dist.ReduceOp, name), dtype, "here")
        out = torch.empty_like(left)
        how.combine(how.before(left, 2), how.before(right, 2), out=out)
        how.after(out, 2)
        wanted = reduced([left, right], name)
        if dtype.itemsize == 1 and dtype.is_floating_point:
            exact = out.float(), wanted.float()
            assert torch.allclose(*exact, rtol=torch.finfo(dtype).eps), (name, dtype)
        else:
            assert same(out, wanted), (name, dtype, out, wanted)


@pytest.mark.parametrize("dtype", UNSIGNED)
def test_unsigned_extremes(dtype):
    """Values above the signed maximum keep their order, and sums wrap around."""
    top = torch.iinfo(dtype).max
    left, right = torch.tensor([top, 1], dtype=dtype), torch.tensor([1, 2], dtype=dtype)
    for name, wanted in [("MAX", [top, 2]), ("MIN", [1, 1]), ("SUM", [0, 3])]:
        out = torch.empty_like(left)
        with np.errstate(over="ignore"):
            reducer(getattr(dist.ReduceOp, name), dtype, "here").combine(left, right, out=out)
        assert out.tolist() == wanted


def test_operands_may_overlap_the_result():
    for name in ("SUM", "MAX"):
        how = reducer(getattr(dist.ReduceOp, name), torch.float32, "here")
        left, right = torch.tensor([1.0, 5.0]), torch.tensor([2.0, 3.0])
        wanted = reduced([left, right], name)
        again = left.clone(), right.clone()
        how.combine(left, right, out=left)
        how.combine(*again, out=again[1])
        assert left.tolist() == again[1].tolist() == wanted.tolist()
