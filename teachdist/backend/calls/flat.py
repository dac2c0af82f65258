"""Flat tensors: the form in which the executor and the links know data.

Everything that moves is *flat*: a contiguous one-dimensional tensor in host memory. `flat(t)` is
a view where `t` allows it and a copy otherwise (strided tensors, tensors on a GPU); `put_back`
carries a result from such a copy to the tensor that the caller gave. So nothing else in the
backend knows strides or devices.

Nor does anything else know inference mode. torch lets a tensor that was made in that mode be
changed only in that mode, and the mode belongs to a thread: what a call keeps, or hands to the
group's thread, would depend on where it was made. So what torch calls leaves the mode
(`outside_inference`), and a caller's inference tensor is seen as the plain memory that it is.
"""

import ctypes
import functools

import torch

from teachdist.links.transport.raw import scratch, view_bytes

__all__ = [
    "changing",
    "cut",
    "flat",
    "is_view_of",
    "outside_inference",
    "put_back",
    "room",
    "scratch",
    "share_memory",
    "view_bytes",
]


def flat(tensor):
    """A contiguous one-dimensional host tensor with the same elements: a view where possible.

    A copy from a GPU waits for the kernels queued on the current stream, so what they compute
    is what is sent.
    """
    if tensor.device.type != "cpu":
        return room(tensor).copy_(tensor.detach().reshape(-1))
    tensor = tensor.detach()
    if tensor.is_conj() or tensor.is_neg():  # lazy bits: the bytes are not yet the values
        tensor = tensor.resolve_conj().resolve_neg()
    return _plain(tensor.contiguous().view(-1))


def outside_inference(method):
    """The method, run so that tensors made in it are like all others, whatever mode is on."""

    @functools.wraps(method)
    def outside(*args):
        if not torch.is_inference_mode_enabled():
            return method(*args)
        with torch.inference_mode(False):
            return method(*args)

    return outside


def _plain(tensor):
    """A flat tensor that may be changed in any mode, over the same memory."""
    if not tensor.is_inference() or not tensor.numel():
        return tensor
    memory = (ctypes.c_char * tensor.nbytes).from_address(tensor.data_ptr())
    memory.owner = tensor  # lives as long as what looks at its memory
    return torch.frombuffer(memory, dtype=torch.uint8).view(tensor.dtype)


def room(tensor):
    """A flat tensor to receive what will be put into `tensor`; what is in that is not copied.

    On a GPU the caller's stream may still be about to write to the tensor (zero it, say), so
    that stream is waited for before anything is put there.
    """
    if tensor.device.type != "cpu":
        torch.accelerator.current_stream(tensor.device).synchronize()
        return torch.empty(tensor.numel(), dtype=tensor.dtype, pin_memory=True)
    if tensor.is_contiguous() and not (tensor.is_conj() or tensor.is_neg()):
        return _plain(tensor.detach().view(-1))
    return torch.empty(tensor.numel(), dtype=tensor.dtype)


def is_view_of(flat_tensor, tensor):
    """Whether writing to `flat(tensor)` writes to `tensor` itself."""
    return flat_tensor.data_ptr() == tensor.data_ptr()


def changing(tensor):
    """A context in which a caller's tensor may be changed, by any thread."""
    return torch.inference_mode() if tensor.is_inference() else torch.no_grad()


def put_back(values, tensor):
    """Write flat `values` to the tensor they stand for, whatever its strides and device."""
    with changing(tensor):
        tensor.detach().copy_(values.view(tensor.shape))


def share_memory(left, right):
    """Whether two flat tensors have bytes in common."""
    a, b = left.data_ptr(), right.data_ptr()
    return (
        a < b + right.numel() * right.element_size() and b < a + left.numel() * left.element_size()
    )


def cut(tensor, pieces):
    """Cut a flat tensor into `pieces` parts of nearly equal length (some may be empty)."""
    if pieces == 1:
        return [tensor]
    total = tensor.numel()
    edges = [total * i // pieces for i in range(pieces + 1)]
    return torch.split_with_sizes(tensor, [b - a for a, b in zip(edges, edges[1:], strict=False)])
