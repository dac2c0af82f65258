"""Tensors for the matrix: every dtype, every layout, and what a reduction of them must give.

Values are small whole numbers, so that floating-point sums and products are exact in any order and
results can be compared bit by bit with the definition.
"""

import operator
from functools import reduce

import torch

INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
UNSIGNED = [torch.uint16, torch.uint32, torch.uint64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
COMPLEX = [torch.complex32, torch.complex64, torch.complex128]
FLOAT8 = [
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz,
    torch.float8_e8m0fnu,
]
DTYPES = [torch.bool, *INTEGERS, *UNSIGNED, *FLOATS, *COMPLEX, *FLOAT8]
SHAPES = [(), (0,), (1,), (7,), (4, 3)]
LAYOUTS = ["plain", "strided", "transposed", "offset"]


def ramp(numel, seed):
    """Numbers 1, 2, 4, 1, 2, ... from a place that depends on `seed`: exact in every dtype."""
    return 2 ** ((torch.arange(numel) + 5 * seed) % 3)


def make(shape, dtype, layout, seed):
    """A tensor of that shape whose values depend on `seed`, laid out in memory as asked."""
    numel = 1
    for length in shape:
        numel *= length
    values = ramp(numel, seed)
    if dtype == torch.bool:
        values = (torch.arange(numel) + seed) % 2
    values = values.to(torch.float32 if dtype in FLOAT8 else torch.int64).reshape(shape)
    if dtype in COMPLEX:
        values = torch.complex(values.float(), values.flip(0).float() if shape else values.float())
    tensor = blank(shape, dtype, layout)
    tensor.copy_(values)
    return tensor


def blank(shape, dtype, layout):
    """A tensor of that shape full of junk."""
    if layout == "strided":
        return junk((*shape, 2), dtype)[..., 1]
    if layout == "transposed":
        return junk(tuple(reversed(shape)), dtype).permute(tuple(reversed(range(len(shape)))))
    if layout == "offset":
        return junk((2, *shape), dtype)[1]
    return junk(shape, dtype)


def junk(shape, dtype):
    numel = 1
    for length in shape:
        numel *= length
    bits = torch.full((numel * dtype.itemsize,), 1, dtype=torch.uint8)
    return bits.view(dtype).reshape(shape) if numel else torch.empty(shape, dtype=dtype)


def same(left, right):
    """Equal bit by bit (so that the signs of zeros and payloads of NaNs count)."""
    return left.shape == right.shape and left.dtype == right.dtype and bits(left) == bits(right)


def bits(tensor):
    """The values' bytes."""
    packed = torch.empty(tensor.numel(), dtype=tensor.dtype)
    packed.copy_(tensor.detach().reshape(-1))
    return bytes(packed.view(torch.uint8).numpy()) if packed.numel() else b""


OPERATORS = {
    "SUM": operator.add,
    "PRODUCT": operator.mul,
    "MIN": min,
    "MAX": max,
    "BAND": operator.and_,
    "BOR": operator.or_,
    "BXOR": operator.xor,
}


def reduced(tensors, name):
    """What a reduction must give, number by number in plain Python."""
    dtype, shape = tensors[0].dtype, tensors[0].shape
    columns = zip(*(numbers(t) for t in tensors), strict=True)
    if name == "AVG":
        results = [averaged(column, dtype) for column in columns]
    else:
        results = [reduce(OPERATORS[name], column) for column in columns]
    if dtype == torch.bool:
        results = [bool(result) for result in results]
    elif not (dtype.is_floating_point or dtype.is_complex):
        results = [result % 2 ** (8 * dtype.itemsize) for result in results]
        signed = dtype not in (torch.uint8, *UNSIGNED)
        half = 2 ** (8 * dtype.itemsize - 1)
        results = [r - 2 * half if signed and r >= half else r for r in results]
    if dtype == torch.uint64:
        return torch.tensor(results, dtype=torch.uint64).reshape(shape)
    wide = torch.float32 if dtype in FLOAT8 else dtype
    wide = torch.complex64 if dtype == torch.complex32 else wide
    return torch.tensor(results, dtype=wide).to(dtype).reshape(shape)


def averaged(column, dtype):
    total = sum(column)
    if dtype.is_floating_point or dtype.is_complex:
        return total / len(column)
    return int(total % 2 ** (8 * dtype.itemsize) / len(column))


def numbers(tensor):
    """The values as Python numbers."""
    if tensor.dtype in FLOAT8 or tensor.dtype == torch.complex32:
        tensor = tensor.to(torch.complex64 if tensor.is_complex() else torch.float32)
    return tensor.reshape(-1).tolist()


def defined(name, dtype):
    """Whether a reduce operation exists on a dtype."""
    fractions = dtype.is_floating_point or dtype.is_complex
    if name in ("BAND", "BOR", "BXOR"):
        return not fractions
    if name in ("MIN", "MAX", "PRODUCT"):
        return not dtype.is_complex
    return not (name == "AVG" and dtype == torch.bool)
