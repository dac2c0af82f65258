"""The reduce operations, on tensors: what happens where two contributions meet.

`reducer(op, dtype)` answers with a `Reducer`: how two operands combine, what is done to a
rank's input before (PREMUL_SUM), and to the result after (AVG). Combining happens on whatever
dtype the tensors have, as torch's own elementwise operations define it; float8, for which torch
has no arithmetic, is combined in float32 and rounded back at every step.

What mathematics leaves undefined is an error: an order of complex numbers (MIN, MAX), bits of
floating-point numbers (BAND, BOR, BXOR).

Source: torch.distributed documentation, "ReduceOp".
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist

_KINDS = {
    name: getattr(dist.ReduceOp.RedOpType, name)
    for name in ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM")
}
_NAMES = {kind: name for name, kind in _KINDS.items()}

_COMBINE = {
    "SUM": torch.add,
    "AVG": torch.add,
    "PREMUL_SUM": torch.add,
    "PRODUCT": torch.mul,
    "MIN": torch.minimum,
    "MAX": torch.maximum,
    "BAND": torch.bitwise_and,
    "BOR": torch.bitwise_or,
    "BXOR": torch.bitwise_xor,
}
_BITWISE = {"BAND", "BOR", "BXOR"}


@dataclass(frozen=True)
class Reducer:
    """One reduce operation on one dtype."""

    name: str
    dtype: torch.dtype
    factor: object = None

    def combine(self, out, left, right):
        """Out = left op right, elementwise on flat tensors; `out` may be either of them."""
        if self.dtype.is_floating_point and self.dtype.itemsize == 1:
            out.copy_(_COMBINE[self.name](left.float(), right.float()))
        else:
            _COMBINE[self.name](left, right, out=out)

    def before(self, tensor):
        """A rank's input as it enters the reduction; a new tensor if it differs."""
        if self.name != "PREMUL_SUM":
            return tensor
        return (tensor * self.factor).to(self.dtype)

    def after(self, tensor, size):
        """Turn the finished sum into the result, in place; `size` is the number of ranks."""
        if self.name != "AVG":
            return
        if self.dtype.is_floating_point and self.dtype.itemsize == 1:
            tensor.copy_(tensor.float() / size)
        elif self.dtype.is_floating_point or self.dtype.is_complex:
            tensor.div_(size)
        else:
            tensor.div_(size, rounding_mode="trunc")


def reducer(op, dtype, where):
    """The `Reducer` for torch's `op`; raises for what is undefined, naming the call `where`."""
    name = _NAMES.get(op.op if hasattr(op, "op") else op)
    if name is None:
        raise ValueError(f"{where}: op={op} is not a reduce operation; known: {', '.join(_KINDS)}")
    if dtype.is_complex and name in {"MIN", "MAX"}:
        raise ValueError(
            f"{where}: {name} of {short(dtype)} is undefined: no order; use real views"
        )
    if name in _BITWISE and (dtype.is_floating_point or dtype.is_complex):
        raise ValueError(f"{where}: {name} is defined on integers and bool, not on {short(dtype)}")
    if name == "AVG" and dtype == torch.bool:
        raise ValueError(f"{where}: AVG of bool is undefined; convert to a number first")
    factor = getattr(op, "factor", None) if name == "PREMUL_SUM" else None
    if name == "PREMUL_SUM" and factor is None:
        raise ValueError(
            f"{where}: PREMUL_SUM needs its factor: dist._make_nccl_premul_sum(factor)"
        )
    return Reducer(name, dtype, factor)


def short(dtype):
    """float32 for torch.float32."""
    return str(dtype).removeprefix("torch.")
