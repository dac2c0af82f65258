"""Checks of arguments: a bad call raises where it is made, before anything is sent.

That matters more here than elsewhere: once one rank has sent half of a collective, the others
wait for the rest. Every message names the operation, the argument, what was expected and what
came; nothing is remembered, so the group stays usable.
"""

import torch

from teachdist.backend.calls.flat import share_memory
from teachdist.backend.calls.reduce_ops import short

DEVICES = ("cpu", "cuda")


def check(tensor, op, argument):
    """Refuse what this backend can't move; the tensor."""
    if tensor.device.type not in DEVICES:
        raise ValueError(
            f"{op}: {argument} is on {tensor.device}; this backend serves {' and '.join(DEVICES)}"
        )
    if tensor.layout != torch.strided:
        raise ValueError(f"{op}: {argument} has layout {tensor.layout}; only dense tensors")
    if tensor.is_quantized:
        raise ValueError(f"{op}: {argument} is quantized; send its int_repr() instead")
    return tensor


def check_output(tensor, op, argument):
    """Refuse what this backend can't write a result to; the tensor."""
    check(tensor, op, argument)
    if not tensor.is_contiguous() and torch._debug_has_internal_overlap(tensor) == 1:
        raise ValueError(
            f"{op}: {argument} has several elements at one place in memory (strides "
            f"{list(tensor.stride())}), so it cannot hold a result; give a tensor of its own, "
            "as from clone()"
        )
    return tensor


def check_root(root, size, op, argument):
    """A root must be a rank of the group."""
    if not 0 <= root < size:
        raise ValueError(
            f"{op}: {argument}={root} is not a rank of this group of {size}; its ranks are 0 to "
            f"{size - 1}"
        )


def check_list(tensors, size, like, op, argument, even=False):
    """A list argument: one tensor per rank, the right dtype and device."""
    if len(tensors) != size:
        raise ValueError(
            f"{op}: {argument} must have {size} tensors, one per rank, got {len(tensors)}"
        )
    for i, tensor in enumerate(tensors):
        check(tensor, op, f"{argument}[{i}]")
        if tensor.dtype != like.dtype:
            raise TypeError(
                f"{op}: {argument}[{i}] is {short(tensor.dtype)}, expected {short(like.dtype)}"
            )
        if tensor.device.type != like.device.type:
            raise ValueError(f"{op}: {argument}[{i}] is on {tensor.device}, expected {like.device}")
        if even and tensor.numel() != like.numel():
            raise ValueError(
                f"{op}: {argument}[{i}] has shape {list(tensor.shape)}, expected "
                f"{list(like.shape)} as this rank's tensor"
            )


def check_outputs(tensors, size, like, op, argument, even=False):
    """A list of outputs: one tensor per rank, each fit for a result, no memory used twice."""
    check_list(tensors, size, like, op, argument, even)
    places = {}
    for i, tensor in enumerate(tensors):
        check_output(tensor, op, f"{argument}[{i}]")
        first = places.setdefault(tensor.data_ptr(), i) if tensor.numel() else i
        if first != i:
            raise ValueError(
                f"{op}: {argument}[{i}] shares its memory with {argument}[{first}], so both would "
                "show the last one written; make a tensor per rank, not [t] * world_size"
            )


def check_whole(whole, part, size, op, whole_name, part_name):
    """`whole` must have `size` times as many elements as `part`, of the same dtype."""
    check_same_kind(whole, part, op, whole_name, part_name)
    if whole.numel() != part.numel() * size:
        raise ValueError(
            f"{op}: {whole_name} has {whole.numel()} elements, expected {size} times the "
            f"{part.numel()} of {part_name} (shapes {list(whole.shape)}, {list(part.shape)})"
        )


def check_same_kind(left, right, op, left_name, right_name):
    """Two tensors of one call must have one dtype and one kind of device."""
    if left.dtype != right.dtype:
        raise TypeError(
            f"{op}: {left_name} is {short(left.dtype)}, {right_name} is {short(right.dtype)}"
        )
    if left.device.type != right.device.type:
        raise ValueError(
            f"{op}: {left_name} is on {left.device}, {right_name} is on {right.device}"
        )


def check_own(out, own, op, rank):
    """What a rank sends to itself must fit."""
    if out != own:
        raise ValueError(
            f"{op}: rank {rank} keeps {own} elements for itself but has room for {out} of them"
        )


def check_splits(tensor, splits, size, op, argument):
    """The rows for each rank, equal parts when no splits are given."""
    rows = tensor.shape[0] if tensor.dim() else 1
    if not splits:
        if rows % size:
            raise ValueError(
                f"{op}: {argument} has {rows} rows, which {size} ranks cannot share equally; give "
                f"{argument}_split_sizes"
            )
        return [rows // size] * size
    if len(splits) != size or sum(splits) != rows or min(splits) < 0:
        raise ValueError(
            f"{op}: {argument}_split_sizes={list(splits)} must be {size} numbers, none negative, "
            f"that add up to {argument}'s {rows} rows"
        )
    return list(splits)


def apart(sources, outputs):
    """The sources, copied where an output would overwrite them while they are still needed."""
    return [
        source.clone() if any(share_memory(source, out) for out in outputs) else source
        for source in sources
    ]


def one(tensors, index, op):
    """The one tensor of a list; torch's methods take lists for reasons long gone."""
    if len(tensors) != 1 or index != 0:
        raise ValueError(f"{op}: one tensor per rank is expected, got a list of {len(tensors)}")
    return tensors[0]


def same_count(left, right, op, left_name, right_name):
    """Lists of a coalesced call belong together pair by pair."""
    if len(left) != len(right):
        raise ValueError(
            f"{op}: {left_name} has {len(left)} entries, {right_name} has {len(right)}; expected "
            "as many of each"
        )
    if not left:
        raise ValueError(f"{op}: {left_name} is empty; expected at least one entry")


def by_rank(output_lists, inputs, size):
    """For a coalesced all_gather: one list per rank, each with one tensor per input."""
    if len(output_lists) != size:
        raise ValueError(
            f"all_gather_coalesced: output_tensor_lists must have {size} lists, one per rank, got "
            f"{len(output_lists)}"
        )
    for i, outputs in enumerate(output_lists):
        if len(outputs) != len(inputs):
            raise ValueError(
                f"all_gather_coalesced: output_tensor_lists[{i}] has {len(outputs)} tensors, "
                f"expected {len(inputs)}, one per input"
            )
