"""A call: one collective on one rank, in the form that the executor understands.

From here on the collectives differ no more. What differs, which chunk is which part of which
tensor, is in `binding.py`.
"""

from dataclasses import dataclass, field

import torch

from teachdist.backend.calls.flat import is_view_of, put_back
from teachdist.backend.calls.reduce_ops import factor_of, short


@dataclass
class Call:
    """One collective as the executor runs it.

    bind(k): ({chunk: flat tensor held at the start}, {chunk: flat tensor for the end}).
    foreign: elements of a chunk that only passes through, None if only its sender knows.
    agree: what must be equal on all ranks, beside op, root and reduce op (goes into the
        fingerprint). nbytes: the n of the cost formulas; it chooses the algorithm, so it must be
        equal on all ranks.
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
    then: object = None
    route: object = None  # how it went the last time, see `execution/dispatch.py`
    chosen: str | None = None  # what the user wanted ("": nothing) when no route was known yet
    said: dict = field(default_factory=dict)  # place in the program -> words, see `Communicator`
    kept: object = None  # see `persistent.py`
    script: object = None

    def writes(self, tensor, values):
        """Note that `values` (flat) must be copied back when it is not a view of `tensor`."""
        if not is_view_of(values, tensor):
            self.write_back.append((tensor, values))

    def complete(self):
        """After the last round: finish reductions, copy back to strided or GPU tensors."""
        for tensor in self.after:
            self.reducer.after(tensor, self.size)
        for tensor, values in self.write_back:
            put_back(values, tensor)
        if self.then is not None:
            self.then()


def describe(op, tensor, *details):
    """all_reduce(float32[4, 2], SUM): how a call is named in messages."""
    inside = [f"{short(tensor.dtype)}{list(tensor.shape)}", *map(str, details)]
    return f"{op}({', '.join(inside)})"


def name_of(op):
    """SUM for torch's ReduceOp.SUM; PREMUL_SUM(2) with its factor, which ranks must share."""
    name = getattr(op, "op", op).name
    factor = getattr(op, "factor", None) if name == "PREMUL_SUM" else None
    return name if factor is None else f"{name}({factor_of(factor)})"
