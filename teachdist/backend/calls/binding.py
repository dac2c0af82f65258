"""Binding: the arguments of a collective become a `Call`.

Each function below turns the arguments of one collective into a `Call`: which chunk is which
part of which tensor. They are the only place where the collectives differ; from here on there is
one executor. Arguments are checked here (`checks.py`), on the caller's thread, before anything is
sent, so a bad call raises where it is made and leaves the group usable.

Chunks by collective (see `collectives/schedule.py`), for p ranks and rank r:

    all_reduce, reduce, broadcast   the tensor, cut into as many pieces as the algorithm likes
    all_gather, gather              chunk s is the input of rank s
    reduce_scatter, scatter         chunk d is what rank d will have
    all_to_all                      chunk s*p + d goes from rank s to rank d
    barrier                         chunk 0, empty

A tensor that is not an output is only read: what an algorithm adds up on the way lives in
scratch. So `reduce` leaves the tensors of all ranks but the root as they were.
"""

import torch

from teachdist.backend.calls.call import Call, describe, name_of
from teachdist.backend.calls.checks import (
    apart,
    check,
    check_list,
    check_output,
    check_outputs,
    check_own,
    check_root,
    check_same_kind,
    check_splits,
    check_whole,
)
from teachdist.backend.calls.flat import cut, flat, room
from teachdist.backend.calls.reduce_ops import reducer, short
from teachdist.diagnose.splits import told


def all_reduce(tensor, op, rank, size):
    """Every rank's `tensor` becomes the reduction of all."""
    words = describe("all_reduce", check_output(tensor, "all_reduce", "tensor"), name_of(op))
    how = reducer(op, tensor.dtype, words)
    out = flat(tensor)
    source = how.before(out, size)
    call = _call("all_reduce", words, out, [tensor], size, reducer=how)
    call.bind = lambda k: (_numbered(cut(source, k)), _numbered(cut(out, k)))
    call.after = [out]
    call.writes(tensor, out)
    return call


def reduce(tensor, op, root, rank, size):
    """The root's `tensor` becomes the reduction of all; other ranks' tensors stay as they are."""
    words = describe("reduce", check(tensor, "reduce", "tensor"), name_of(op), f"dst={root}")
    check_root(root, size, "reduce", "dst")
    how = reducer(op, tensor.dtype, words)
    out = flat(tensor)
    source = how.before(out, size)
    call = _call("reduce", words, out, [tensor], size, reducer=how, root=root)
    at_root = rank == root
    call.bind = lambda k: (_numbered(cut(source, k)), _numbered(cut(out, k)) if at_root else {})
    if at_root:
        check_output(tensor, "reduce", "tensor")
        call.after = [out]
        call.writes(tensor, out)
    return call


def broadcast(tensor, root, rank, size):
    """Every rank's `tensor` becomes the root's."""
    words = describe("broadcast", check(tensor, "broadcast", "tensor"), f"src={root}")
    check_root(root, size, "broadcast", "src")
    at_root = rank == root
    if not at_root:
        check_output(tensor, "broadcast", "tensor")
    out = flat(tensor) if at_root else room(tensor)
    call = _call("broadcast", words, out, [tensor], size, root=root)
    call.bind = lambda k: (_numbered(cut(out, k)), {}) if at_root else ({}, _numbered(cut(out, k)))
    if not at_root:
        call.writes(tensor, out)
    return call


def all_gather(outputs, tensor, rank, size):
    """`outputs[s]` becomes rank s's `tensor`; sizes may differ between ranks."""
    check(tensor, "all_gather", "tensor")
    check_outputs(outputs, size, tensor, "all_gather", "tensor_list")
    if outputs[rank].numel() != tensor.numel():
        raise ValueError(
            f"all_gather: tensor_list[{rank}] has shape {list(outputs[rank].shape)}, but this "
            f"rank's own tensor, which will be put there, has {list(tensor.shape)}"
        )
    counts = tuple(t.numel() for t in outputs)
    words = describe("all_gather", tensor)
    if len(set(counts)) > 1:
        words = f"all_gather({short(tensor.dtype)}, {list(counts)} elements by rank)"
    outs, source = [room(t) for t in outputs], flat(tensor)
    call = _call("all_gather", words, source, list(outputs), size)
    call.nbytes = sum(counts) * tensor.element_size()
    call.agree = (short(tensor.dtype), counts)
    call.bind = lambda k: ({rank: source}, _numbered(outs))
    for t, out in zip(outputs, outs, strict=True):
        call.writes(t, out)
    return call


def all_gather_single(output, tensor, rank, size):
    """`output`, of size times as many elements, becomes all inputs one behind the other."""
    check(tensor, "all_gather_single", "input")
    check_output(output, "all_gather_single", "output")
    check_whole(output, tensor, size, "all_gather_single", "output", "input")
    out, source = room(output), flat(tensor)
    words = describe("all_gather_single", tensor)
    call = _call("all_gather", words, source, [output], size)
    call.nbytes = output.numel() * output.element_size()
    call.bind = lambda k: ({rank: source}, _numbered(cut(out, size)))
    call.writes(output, out)
    return call


def gather_single(output, tensor, root, rank, size):
    """On the root `output` becomes all inputs, one behind the other; others give none."""
    outputs = []
    if rank == root:
        check_output(output, "gather_single", "output")
        check_whole(output, tensor, size, "gather_single", "output", "input")
        out = room(output)
        outputs = [part.view(tensor.shape) for part in cut(out, size)]
    call = gather(outputs, tensor, root, rank, size)
    if rank == root:
        call.outputs = [output]
        call.writes(output, out)
    return call


def gather(outputs, tensor, root, rank, size):
    """On the root `outputs[s]` becomes rank s's `tensor`."""
    check(tensor, "gather", "tensor")
    check_root(root, size, "gather", "dst")
    if rank == root:
        check_outputs(outputs, size, tensor, "gather", "gather_list", even=True)
    elif outputs:
        raise ValueError(
            f"gather: gather_list must be left out on rank {rank}; only the destination, "
            f"dst={root}, gives one"
        )
    outs = [room(t) for t in outputs] if rank == root else []
    source = flat(tensor)
    words = describe("gather", tensor, f"dst={root}")
    call = _call("gather", words, source, list(outputs), size, root=root)
    call.nbytes *= size
    call.bind = lambda k: ({rank: source}, _numbered(outs))
    for t, out in zip(outputs, outs, strict=False):
        call.writes(t, out)
    return call


def scatter(output, inputs, root, rank, size):
    """Rank d's `output` becomes the root's `inputs[d]`."""
    check_output(output, "scatter", "tensor")
    check_root(root, size, "scatter", "src")
    if rank == root:
        check_list(inputs, size, output, "scatter", "scatter_list", even=True)
    elif inputs:
        raise ValueError(
            f"scatter: scatter_list must be left out on rank {rank}; only the source, "
            f"src={root}, gives one"
        )
    out = room(output)
    words = describe("scatter", output, f"src={root}")
    call = _call("scatter", words, out, [output], size, root=root)
    call.nbytes *= size
    sources = apart([flat(t) for t in inputs], [out]) if rank == root else []
    call.bind = lambda k: (_numbered(sources), {rank: out})
    call.writes(output, out)
    return call


def reduce_scatter(output, inputs, op, rank, size):
    """Rank d's `output` becomes the reduction of all ranks' `inputs[d]`; sizes may differ by d."""
    check_output(output, "reduce_scatter", "output")
    check_list(inputs, size, output, "reduce_scatter", "input_list")
    if inputs[rank].numel() != output.numel():
        raise ValueError(
            f"reduce_scatter: input_list[{rank}] has shape {list(inputs[rank].shape)}, but this "
            f"rank's output has {list(output.shape)}"
        )
    counts = tuple(t.numel() for t in inputs)
    words = describe("reduce_scatter", output, name_of(op))
    how = reducer(op, output.dtype, words)
    out = room(output)
    sources = [how.before(flat(t), size) for t in inputs]
    call = _call("reduce_scatter", words, out, [output], size, reducer=how)
    return _reduce_scatter(call, output, out, sources, counts, rank)


def reduce_scatter_single(output, tensor, op, rank, size):
    """Rank d's `output` becomes the reduction of the d-th part of all ranks' `tensor`."""
    check_output(output, "reduce_scatter_single", "output")
    check(tensor, "reduce_scatter_single", "input")
    check_whole(tensor, output, size, "reduce_scatter_single", "input", "output")
    words = describe("reduce_scatter_single", tensor, name_of(op))
    how = reducer(op, output.dtype, words)
    out = room(output)
    sources = cut(how.before(flat(tensor), size), size)
    call = _call("reduce_scatter", words, out, [output], size, reducer=how)
    return _reduce_scatter(call, output, out, sources, (output.numel(),) * size, rank)


def _reduce_scatter(call, output, out, sources, counts, rank):
    others = [i for i in range(len(sources)) if i != rank]
    moved = apart([sources[i] for i in others], [out])
    sources = [moved[others.index(i)] if i != rank else t for i, t in enumerate(sources)]
    call.nbytes = sum(counts) * output.element_size()
    call.agree = (short(output.dtype), counts)
    call.bind = lambda k: (_numbered(sources), {rank: out})
    call.after = [out]
    call.writes(output, out)
    return call


def all_to_all(outputs, inputs, rank, size):
    """`outputs[s]` becomes rank s's `inputs[rank]`; every pair may have a size of its own."""
    like = inputs[0] if inputs else torch.empty(0)
    check_list(inputs, size, like, "all_to_all", "input_tensor_list")
    check_outputs(outputs, size, like, "all_to_all", "output_tensor_list")
    check_own(outputs[rank].numel(), inputs[rank].numel(), "all_to_all", rank)
    outs = [room(t) for t in outputs]
    splits = told([t.numel() for t in inputs], [t.numel() for t in outputs])
    splits = splits or (f"{like.numel()} elements each",)
    words = f"all_to_all({', '.join((short(like.dtype), *splits))})"
    call = _exchange(words, outs, [flat(t) for t in inputs], list(outputs), rank, size)
    for t, out in zip(outputs, outs, strict=True):
        call.writes(t, out)
    return call


def all_to_all_single(output, tensor, output_splits, input_splits, rank, size):
    """Rows of one tensor for each rank, by the splits; equal parts if they are left out."""
    op = "all_to_all_single"
    check(tensor, op, "input")
    check_output(output, op, "output")
    check_same_kind(output, tensor, op, "output", "input")
    out = room(output)
    sends = check_splits(tensor, input_splits, size, op, "input")
    receives = check_splits(output, output_splits, size, op, "output")
    sources, outs = _rows(flat(tensor), tensor, sends), _rows(out, output, receives)
    check_own(outs[rank].numel(), sources[rank].numel(), op, rank)
    words = describe(op, tensor, *told(sends, receives))
    call = _exchange(words, outs, sources, [output], rank, size)
    call.writes(output, out)
    return call


def barrier(rank, size):
    """Nobody leaves before everybody has come."""
    call = _call("barrier", "barrier()", _NOTHING, [], size, reducer=_Union())
    call.bind = lambda k: ({0: _NOTHING}, {})
    return call


# -- parts ---------------------------------------------------------------------------------

_NOTHING = torch.empty(0)


def _call(op, words, like, outputs, size, **more):
    return Call(
        op,
        None,
        outputs,
        like.dtype,
        like.numel() * like.element_size(),
        words,
        agree=(short(like.dtype), like.numel()),
        foreign=like.numel(),
        size=size,
        **more,
    )


def _exchange(words, outs, sources, outputs, rank, size):
    sources = apart(sources, outs)
    call = _call("all_to_all", words, sources[0], outputs, size)
    if len({t.numel() for t in (*sources, *outs)}) > 1:
        call.foreign = None
    call.nbytes = sum(t.nbytes for t in sources)
    call.agree = (short(sources[0].dtype),)
    call.bind = lambda k: (
        {rank * size + d: t for d, t in enumerate(sources)},
        {s * size + rank: t for s, t in enumerate(outs)},
    )
    return call


def _numbered(tensors):
    return dict(enumerate(tensors))


def _rows(values, tensor, splits):
    """Cut a flat tensor by numbers of rows of the tensor it came from."""
    rows = tensor.shape[0] if tensor.dim() else 1
    width = values.numel() // rows if rows else 0
    return list(values.split([n * width for n in splits]))


class _Union:
    """For a barrier: its one chunk is empty, so combining has nothing to do."""

    name = agreed = "none"

    def combine(self, left, right, out):
        """Both are empty."""
