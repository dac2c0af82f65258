"""A call: one collective on one rank, in the form that the executor understands.

Each function below turns the arguments of one collective into a `Call`: which chunk is which
part of which tensor. They are the only place where the collectives differ; from here on there is
one executor. Arguments are checked here, on the caller's thread, before anything is sent, so a
bad call raises where it is made and leaves the group usable.

Chunks by collective (see `collectives/schedule.py`), for p ranks and rank r:

    all_reduce, reduce, broadcast   the tensor, cut into as many pieces as the algorithm likes
    all_gather, gather              chunk s is the input of rank s
    reduce_scatter, scatter         chunk d is what rank d will have
    all_to_all                      chunk s*p + d goes from rank s to rank d
    barrier                         chunk 0, empty
"""

from dataclasses import dataclass, field

import torch

from teachdist.backend.memory import cut, flat, is_view_of
from teachdist.backend.reduce_ops import reducer, short


@dataclass
class Call:
    """One collective as the executor runs it.

    bind(k): ({chunk: flat tensor held at the start}, {chunk: flat tensor for the end}).
    foreign: elements of a chunk that only passes through, None if only its sender knows.
    agree: what must be equal on all ranks, beside op, root and reduce op (goes into the
        fingerprint). nbytes: the n of the cost formulas.
    """

    op: str
    bind: object
    outputs: list
    dtype: torch.dtype
    nbytes: int
    words: str
    agree: tuple = ()
    root: int = 0
    reducer: object = None
    foreign: int | None = None
    size: int = 1
    write_back: list = field(default_factory=list)
    after: list = field(default_factory=list)

    def complete(self):
        """After the last round: finish reductions, copy back to strided tensors."""
        for tensor in self.after:
            self.reducer.after(tensor, self.size)
        for tensor, values in self.write_back:
            tensor.detach().copy_(values.view(tensor.shape))


def describe(op, tensor, *details):
    """all_reduce(float32[4, 2], SUM): how a call is named in messages."""
    inside = [f"{short(tensor.dtype)}{list(tensor.shape)}", *map(str, details)]
    return f"{op}({', '.join(inside)})"


def all_reduce(tensor, op, size):
    """Every rank's `tensor` becomes the reduction of all."""
    words = describe("all_reduce", check(tensor, "all_reduce", "tensor"), name_of(op))
    how = reducer(op, tensor.dtype, words)
    out = flat(tensor)
    source = how.before(out)
    call = _call("all_reduce", words, out, [tensor], size, reducer=how)
    call.bind = lambda k: (_numbered(cut(source, k)), _numbered(cut(out, k)))
    call.after = [out]
    _writes(call, tensor, out)
    return call


def reduce(tensor, op, root, rank, size):
    """The root's `tensor` becomes the reduction of all; other ranks' tensors stay as they are."""
    words = describe("reduce", check(tensor, "reduce", "tensor"), name_of(op), f"dst={root}")
    how = reducer(op, tensor.dtype, words)
    out = flat(tensor)
    source = how.before(out)
    call = _call("reduce", words, out, [tensor], size, reducer=how, root=root)
    at_root = rank == root
    call.bind = lambda k: (_numbered(cut(source, k)), _numbered(cut(out, k)) if at_root else {})
    if at_root:
        call.after = [out]
        _writes(call, tensor, out)
    return call


def broadcast(tensor, root, rank, size):
    """Every rank's `tensor` becomes the root's."""
    words = describe("broadcast", check(tensor, "broadcast", "tensor"), f"src={root}")
    out = flat(tensor)
    call = _call("broadcast", words, out, [tensor], size, root=root)
    at_root = rank == root
    call.bind = lambda k: (_numbered(cut(out, k)), {}) if at_root else ({}, _numbered(cut(out, k)))
    if not at_root:
        _writes(call, tensor, out)
    return call


def all_gather(outputs, tensor, rank, size):
    """`outputs[s]` becomes rank s's `tensor`; sizes may differ between ranks."""
    check(tensor, "all_gather", "tensor")
    check_list(outputs, size, tensor, "all_gather", "tensor_list")
    if outputs[rank].numel() != tensor.numel():
        raise ValueError(
            f"all_gather: tensor_list[{rank}] has {outputs[rank].numel()} elements, but this "
            f"rank's own tensor, which will be put there, has {tensor.numel()}"
        )
    counts = tuple(t.numel() for t in outputs)
    words = describe("all_gather", tensor)
    if len(set(counts)) > 1:
        words = f"all_gather({short(tensor.dtype)}, {list(counts)} elements by rank)"
    outs = [flat(t) for t in outputs]
    source = flat(tensor)
    call = _call("all_gather", words, source, [list(outputs)], size)
    call.nbytes = sum(counts) * tensor.element_size()
    call.agree = (short(tensor.dtype), counts)
    call.bind = lambda k: ({rank: source}, _numbered(outs))
    for t, out in zip(outputs, outs, strict=True):
        _writes(call, t, out)
    return call


def all_gather_single(output, tensor, rank, size):
    """`output`, of size times as many elements, becomes all inputs one behind the other."""
    check(tensor, "all_gather_single", "input")
    check(output, "all_gather_single", "output")
    check_whole(output, tensor, size, "all_gather_single", "output", "input")
    out, source = flat(output), flat(tensor)
    words = describe("all_gather_single", tensor)
    call = _call("all_gather", words, source, [output], size)
    call.nbytes = output.numel() * output.element_size()
    call.bind = lambda k: ({rank: source}, _numbered(cut(out, size)))
    _writes(call, output, out)
    return call


def gather(outputs, tensor, root, rank, size):
    """On the root `outputs[s]` becomes rank s's `tensor`."""
    check(tensor, "gather", "tensor")
    if rank == root:
        check_list(outputs, size, tensor, "gather", "gather_list", even=True)
    elif outputs:
        raise ValueError(
            f"gather: gather_list must be left out on rank {rank}; only the destination, "
            f"dst={root}, gives one"
        )
    outs = [flat(t) for t in outputs] if rank == root else []
    source = flat(tensor)
    words = describe("gather", tensor, f"dst={root}")
    call = _call("gather", words, source, [list(outputs)], size, root=root)
    call.nbytes *= size
    call.bind = lambda k: ({rank: source}, _numbered(outs))
    for t, out in zip(outputs, outs, strict=False):
        _writes(call, t, out)
    return call


def scatter(output, inputs, root, rank, size):
    """Rank d's `output` becomes the root's `inputs[d]`."""
    check(output, "scatter", "tensor")
    if rank == root:
        check_list(inputs, size, output, "scatter", "scatter_list", even=True, written=False)
    elif inputs:
        raise ValueError(
            f"scatter: scatter_list must be left out on rank {rank}; only the source, "
            f"src={root}, gives one"
        )
    out = flat(output)
    words = describe("scatter", output, f"src={root}")
    call = _call("scatter", words, out, [output], size, root=root)
    call.nbytes *= size
    sources = [flat(t) for t in inputs] if rank == root else []
    call.bind = lambda k: (_numbered(sources), {rank: out})
    _writes(call, output, out)
    return call


def reduce_scatter(output, inputs, op, rank, size):
    """Rank d's `output` becomes the reduction of all ranks' `inputs[d]`; sizes may differ by d."""
    check(output, "reduce_scatter", "output")
    check_list(inputs, size, output, "reduce_scatter", "input_list", written=False)
    if inputs[rank].numel() != output.numel():
        raise ValueError(
            f"reduce_scatter: input_list[{rank}] has {inputs[rank].numel()} elements, but this "
            f"rank's output has {output.numel()}"
        )
    counts = tuple(t.numel() for t in inputs)
    words = describe("reduce_scatter", output, name_of(op))
    how = reducer(op, output.dtype, words)
    out = flat(output)
    sources = [how.before(flat(t)) for t in inputs]
    call = _call("reduce_scatter", words, out, [output], size, reducer=how)
    call.nbytes = sum(counts) * output.element_size()
    call.agree = (short(output.dtype), counts)
    call.bind = lambda k: (_numbered(sources), {rank: out})
    call.after = [out]
    _writes(call, output, out)
    return call


def reduce_scatter_single(output, tensor, op, rank, size):
    """Rank d's `output` becomes the reduction of the d-th part of all ranks' `tensor`."""
    check(output, "reduce_scatter_single", "output")
    check(tensor, "reduce_scatter_single", "input")
    check_whole(tensor, output, size, "reduce_scatter_single", "input", "output")
    words = describe("reduce_scatter_single", tensor, name_of(op))
    how = reducer(op, output.dtype, words)
    out = flat(output)
    source = how.before(flat(tensor))
    call = _call("reduce_scatter", words, source, [output], size, reducer=how)
    call.bind = lambda k: (_numbered(cut(source, size)), {rank: out})
    call.after = [out]
    _writes(call, output, out)
    return call


def all_to_all(outputs, inputs, rank, size):
    """`outputs[s]` becomes rank s's `inputs[rank]`; every pair may have a size of its own."""
    if len(inputs) != size or len(outputs) != size:
        raise ValueError(
            f"all_to_all: input_tensor_list and output_tensor_list must have {size} tensors, one "
            f"per rank; got {len(inputs)} and {len(outputs)}"
        )
    check_list(inputs, size, inputs[0], "all_to_all", "input_tensor_list", written=False)
    check_list(outputs, size, inputs[0], "all_to_all", "output_tensor_list")
    check_own(outputs[rank].numel(), inputs[rank].numel(), "all_to_all", rank)
    outs, sources = [flat(t) for t in outputs], [flat(t) for t in inputs]
    words = f"all_to_all({short(inputs[0].dtype)}, {[t.numel() for t in inputs]} elements by rank)"
    call = _exchange(words, outs, sources, [list(outputs)], rank, size)
    for t, out in zip(outputs, outs, strict=True):
        _writes(call, t, out)
    return call


def all_to_all_single(output, tensor, output_splits, input_splits, rank, size):
    """Like `all_to_all`, on parts of one tensor: rows by the splits, equal ones if left out."""
    check(tensor, "all_to_all_single", "input")
    check(output, "all_to_all_single", "output")
    if output.dtype != tensor.dtype:
        raise TypeError(
            f"all_to_all_single: output is {short(output.dtype)}, input is {short(tensor.dtype)}"
        )
    out, source = flat(output), flat(tensor)
    sources = _rows(source, tensor, input_splits, size, "input")
    outs = _rows(out, output, output_splits, size, "output")
    check_own(outs[rank].numel(), sources[rank].numel(), "all_to_all_single", rank)
    words = describe("all_to_all_single", tensor)
    call = _exchange(words, outs, sources, [output], rank, size)
    _writes(call, output, out)
    return call


def barrier(size):
    """Nobody leaves before everybody has come."""
    nothing = torch.empty(0)
    call = _call("barrier", "barrier()", nothing, [], size, reducer=reducer_of_nothing())
    call.bind = lambda k: ({0: nothing}, {})
    return call


# -- parts ---------------------------------------------------------------------------------


def _call(op, words, like, outputs, size, **more):
    return Call(
        op,
        None,
        outputs,
        like.dtype,
        like.numel() * like.element_size(),
        words,
        agree=(short(like.dtype), tuple(like.shape)),
        foreign=like.numel(),
        size=size,
        **more,
    )


def _exchange(words, outs, sources, outputs, rank, size):
    call = _call("all_to_all", words, sources[0], outputs, size)
    call.foreign = None
    call.nbytes = sum(t.numel() for t in sources) * sources[0].element_size()
    call.agree = (short(sources[0].dtype),)
    call.bind = lambda k: (
        {rank * size + d: t for d, t in enumerate(sources)},
        {s * size + rank: t for s, t in enumerate(outs)},
    )
    return call


def _numbered(tensors):
    return dict(enumerate(tensors))


def _writes(call, tensor, values):
    """Note that `values` (flat) must be copied back when it is not a view of `tensor`."""
    if not is_view_of(values, tensor):
        call.write_back.append((tensor, values))


def _rows(values, tensor, splits, size, argument):
    """Cut a flat tensor by numbers of rows of the tensor it came from."""
    rows = tensor.shape[0] if tensor.dim() else 1
    if not splits:
        if rows % size:
            raise ValueError(
                f"all_to_all_single: {argument} has {rows} rows, which {size} ranks cannot share "
                f"equally; give {argument}_split_sizes"
            )
        splits = [rows // size] * size
    if len(splits) != size or sum(splits) != rows or min(splits) < 0:
        raise ValueError(
            f"all_to_all_single: {argument}_split_sizes={list(splits)} must be {size} numbers that "
            f"add up to {argument}'s {rows} rows"
        )
    width = values.numel() // rows if rows else 0
    return list(values.split([n * width for n in splits]))


def reducer_of_nothing():
    """For a barrier: its one chunk is empty, so combining has nothing to do."""

    class Nothing:
        name = "none"

        def combine(self, out, left, right):
            """Both are empty."""

    return Nothing()


def name_of(op):
    """SUM for torch's ReduceOp.SUM."""
    return str(op.op if hasattr(op, "op") else op).rpartition(".")[2].partition(":")[0].rstrip(">")


# -- checks --------------------------------------------------------------------------------


def check(tensor, op, argument):
    """Refuse what this backend can't move; the tensor."""
    if tensor.device.type != "cpu":
        raise ValueError(f"{op}: {argument} is on {tensor.device}; this backend serves the CPU")
    if tensor.layout != torch.strided:
        raise ValueError(f"{op}: {argument} has layout {tensor.layout}; only dense tensors")
    return tensor


def check_list(tensors, size, like, op, argument, even=False, written=True):
    """A list argument: one tensor per rank, the right dtype, and no storage used twice."""
    if len(tensors) != size:
        raise ValueError(
            f"{op}: {argument} must have {size} tensors, one per rank, got {len(tensors)}"
        )
    places = set()
    for i, tensor in enumerate(tensors):
        check(tensor, op, f"{argument}[{i}]")
        if tensor.dtype != like.dtype:
            raise TypeError(
                f"{op}: {argument}[{i}] is {short(tensor.dtype)}, expected {short(like.dtype)}"
            )
        if even and tensor.numel() != like.numel():
            raise ValueError(
                f"{op}: {argument}[{i}] has shape {list(tensor.shape)}, expected "
                f"{list(like.shape)} as this rank's tensor"
            )
        if written and tensor.numel():
            if tensor.data_ptr() in places:
                raise ValueError(
                    f"{op}: {argument}[{i}] shares its memory with an entry before it, so all "
                    "would show the last one written; make a tensor per rank, not [t] * world_size"
                )
            places.add(tensor.data_ptr())


def check_whole(whole, part, size, op, whole_name, part_name):
    """`whole` must have `size` times as many elements as `part`, of the same dtype."""
    if whole.dtype != part.dtype:
        raise TypeError(
            f"{op}: {whole_name} is {short(whole.dtype)}, {part_name} is {short(part.dtype)}"
        )
    if whole.numel() != part.numel() * size:
        raise ValueError(
            f"{op}: {whole_name} has {whole.numel()} elements, expected {size} times the "
            f"{part.numel()} of {part_name} (shapes {list(whole.shape)}, {list(part.shape)})"
        )


def check_own(out, own, op, rank):
    """What a rank sends to itself must fit."""
    if out != own:
        raise ValueError(
            f"{op}: rank {rank} keeps {own} elements for itself but has room for {out} of them"
        )
