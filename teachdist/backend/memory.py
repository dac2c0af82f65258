"""Flat tensors: the form in which the executor and the links know data."""

from teachdist.links.raw import scratch, view_bytes

__all__ = ["cut", "flat", "is_view_of", "scratch", "view_bytes"]


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
