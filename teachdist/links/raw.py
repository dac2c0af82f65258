"""Tensors as bytes: the one place where this package looks under a tensor's skin."""

import ctypes

import torch

_NOTHING = memoryview(bytearray(0))


def view_bytes(tensor):
    """The bytes of a contiguous CPU tensor as a writable memoryview, without a copy.

    Works on every dtype, also on those that numpy does not know (bfloat16, float8). The view
    does not keep the tensor alive.
    """
    length = tensor.nbytes
    if length == 0:
        return _NOTHING
    return memoryview((ctypes.c_char * length).from_address(tensor.data_ptr())).cast("B")


def scratch(numel, dtype):
    """Uninitialised room for partial results."""
    return torch.empty(numel, dtype=dtype)
