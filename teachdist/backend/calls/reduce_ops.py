"""The reduce operations, on tensors: what happens where two contributions meet.

`reducer(op, dtype)` answers with a `Reducer`: how two operands combine, what is done to a
rank's input before (PREMUL_SUM, and AVG, which is documented to divide *before* the sum, so that
an average of large half-precision numbers does not overflow), and to the result after (AVG of
integers, where dividing first would lose everything).

torch's elementwise operations do the combining. Two families of dtypes need more:

- float8, for which torch has hardly any arithmetic, is combined in float32 and rounded back at
  every step;
- unsigned integers wider than a byte, which torch only stores, are combined by numpy.

What mathematics leaves undefined is an error: an order or (by torch's documentation) a product
of complex numbers, bits of floating-point numbers, an average of truth values.

Source: torch.distributed documentation, "ReduceOp".
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import torch
import torch.distributed as dist

_KINDS = {
    name: getattr(dist.ReduceOp.RedOpType, name)
    for name in ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM")
}
_NAMES = {kind: name for name, kind in _KINDS.items()}

_COMBINE = {
    "SUM": (torch.add, np.add),
    "AVG": (torch.add, np.add),
    "PREMUL_SUM": (torch.add, np.add),
    "PRODUCT": (torch.mul, np.multiply),
    "MIN": (torch.minimum, np.minimum),
    "MAX": (torch.maximum, np.maximum),
    "BAND": (torch.bitwise_and, np.bitwise_and),
    "BOR": (torch.bitwise_or, np.bitwise_or),
    "BXOR": (torch.bitwise_xor, np.bitwise_xor),
}
_BITWISE = {"BAND", "BOR", "BXOR"}
_UNSIGNED = {torch.uint16, torch.uint32, torch.uint64}


@dataclass(frozen=True)
class Reducer:
    """One reduce operation on one dtype."""

    name: str
    dtype: torch.dtype
    factor: object = None

    @cached_property
    def agreed(self):
        """What must be equal on all ranks, as text."""
        return self.name if self.factor is None else f"{self.name}({factor_of(self.factor)})"

    @cached_property
    def combine(self):
        """A function that combines two flat tensors and writes to a third, by the keyword `out`.

        Elementwise; it may be one of the two.
        """
        by_torch, by_numpy = _COMBINE[self.name]

        def unsigned(left, right, out):
            by_numpy(left.numpy(), right.numpy(), out=out.numpy())

        def tiny(left, right, out):
            out.copy_(by_torch(left.float(), right.float()))

        if self.dtype in _UNSIGNED:
            return unsigned
        return tiny if _tiny_float(self.dtype) else by_torch

    def before(self, tensor, size):
        """A rank's input as it enters the reduction; a new tensor if it differs."""
        if self.name == "PREMUL_SUM":
            return self._scaled(tensor, self.factor)
        if self.name == "AVG" and _has_fractions(self.dtype):
            return self._scaled(tensor, 1 / size)
        return tensor

    def _scaled(self, tensor, factor):
        if isinstance(factor, torch.Tensor):
            factor = factor.to(tensor.device)
        if _tiny_float(self.dtype):
            tensor = tensor.float()
        return (tensor * factor).to(self.dtype)

    def after(self, tensor, size):
        """Turn the finished sum into the result, in place; `size` is the number of ranks."""
        if self.name != "AVG" or _has_fractions(self.dtype):
            return
        if self.dtype in _UNSIGNED:
            values = tensor.numpy()
            np.floor_divide(values, size, out=values)
        else:
            tensor.div_(size, rounding_mode="trunc")


def _tiny_float(dtype):
    return dtype.is_floating_point and dtype.itemsize == 1


def _has_fractions(dtype):
    return dtype.is_floating_point or dtype.is_complex


def reducer(op, dtype, where):
    """The `Reducer` for torch's `op`; raises for what is undefined, naming the call `where`."""
    kind = getattr(op, "op", op)
    name = _NAMES.get(kind)
    if name is None:
        raise ValueError(f"{where}: op={op} is not a reduce operation; known: {', '.join(_KINDS)}")
    wrong = _undefined(name, dtype)
    if wrong:
        raise ValueError(f"{where}: {wrong}")
    if name != "PREMUL_SUM":
        return _known(name, dtype)
    factor = getattr(op, "factor", None)
    if factor is None:
        raise ValueError(
            f"{where}: PREMUL_SUM needs its factor: op=dist._make_nccl_premul_sum(factor)"
        )
    return Reducer(name, dtype, factor)


@lru_cache(maxsize=256)
def _known(name, dtype):
    return Reducer(name, dtype)


@lru_cache(maxsize=256)
def _undefined(name, dtype):
    """Why this operation does not exist on this dtype; None if it does."""
    if dtype.is_complex and name in {"MIN", "MAX", "PRODUCT"}:
        return f"{name} of {short(dtype)} is undefined: use real tensors (torch.view_as_real)"
    if name in _BITWISE and _has_fractions(dtype):
        return f"{name} is defined on integers and bool, not on {short(dtype)}"
    if name == "AVG" and dtype == torch.bool:
        return "AVG of bool is undefined; convert to a number first"
    try:
        one = torch.zeros(1, dtype=torch.uint8).view(dtype) if dtype.itemsize == 1 else None
        one = torch.zeros(1, dtype=dtype) if one is None else one
        Reducer(name, dtype).combine(one, one, out=one)
    except (RuntimeError, TypeError, NotImplementedError) as error:
        return f"{name} of {short(dtype)}: torch does not define it ({error})"
    return None


def short(dtype):
    """float32 for torch.float32."""
    return str(dtype).removeprefix("torch.")


def factor_of(factor):
    """A factor, a number or a tensor, as text: equal if the factors are."""
    values = factor.flatten().tolist() if isinstance(factor, torch.Tensor) else [factor]
    return ", ".join(f"{value:.9g}" for value in values)
