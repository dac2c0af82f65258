"""Tensors as bytes: the one place where this package looks under a tensor's skin."""

import ctypes

import torch


def view_bytes(tensor):
    """The bytes of a contiguous CPU tensor as a writable memoryview, without a copy.

    Works on every dtype, also on those that numpy does not know (bfloat16, float8). The view
    does not keep the tensor alive.
    """
    length = tensor.numel() * tensor.element_size()
    if length == 0:
        return memoryview(bytearray(0))
    return memoryview((ctypes.c_char * length).from_address(tensor.data_ptr())).cast("B")


def flat(tensor):
    """A contiguous one-dimensional tensor with the same elements: a view where possible."""
    return tensor.detach().contiguous().view(-1)


def is_view_of(flat_tensor, tensor):
    """Whether writing to `flat(tensor)` writes to `tensor` itself."""
    return flat_tensor.data_ptr() == tensor.data_ptr()


def cut(tensor, pieces):
    """Cut a flat tensor into `pieces` parts of nearly equal length (some may be empty)."""
    total = tensor.numel()
    edges = [total * i // pieces for i in range(pieces + 1)]
    return [tensor[a:b] for a, b in zip(edges, edges[1:], strict=False)]


def scratch(numel, dtype):
    """Uninitialised room for partial results."""
    return torch.empty(numel, dtype=dtype)
