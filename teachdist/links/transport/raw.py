"""Tensors as bytes: the one place where this package looks under a tensor's skin."""

import ctypes

import torch

_NOTHING = memoryview(bytearray(0))
_views = {}  # (address, bytes) -> view: programs use the same tensors again and again


def view_bytes(tensor):
    """The bytes of a contiguous CPU tensor as a writable memoryview, without a copy.

    Works on every dtype, also on those that numpy does not know (bfloat16, float8). The view
    does not keep the tensor alive.
    """
    key = (tensor.data_ptr(), tensor.nbytes)
    view = _views.get(key)
    if view is None:
        address, length = key
        if length == 0:
            return _NOTHING
        if len(_views) > 1024:
            _views.clear()
        view = memoryview((ctypes.c_char * length).from_address(address)).cast("B")
        _views[key] = view
    return view


def scratch(numel, dtype):
    """Uninitialised room for partial results."""
    return torch.empty(numel, dtype=dtype)
