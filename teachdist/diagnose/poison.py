"""Pending outputs that cannot be mistaken for results: a switch for debugging.

    work = dist.all_reduce(x, async_op=True)
    print(x)                                    # too early: not a result yet
    work.wait()

What the early reader sees depends on luck: on a fast network often the result, on a busy one the
input, or half of each. With TEACHDIST_POISON=1, or inside `poisoning()`, it sees NaN (the smallest
number for integers) until `wait()`, the future or `is_completed()` has said that the work is over,
every time. A tensor whose work nobody ever waits for stays so.

How: the tensor that the caller holds is given other memory, full of poison; the collective works
on the real one, which comes back when the work is over. Views made before keep showing the real
memory. Costs a copy's worth of memory for each pending output; nothing when off.
"""

import contextlib

import torch

from teachdist.environment import switch

_on = switch("TEACHDIST_POISON", False)


def on():
    """Whether pending outputs are poisoned."""
    return _on


@contextlib.contextmanager
def poisoning():
    """Poison the outputs of asynchronous calls made inside."""
    global _on
    before, _on = _on, True
    try:
        yield
    finally:
        _on = before


class Poisoned:
    """Poison over some tensors until `lift`."""

    def __init__(self, tensors):
        self._hidden = {}
        for tensor in tensors:
            if id(tensor) not in self._hidden and tensor.layout == torch.strided:
                self._hidden[id(tensor)] = (tensor, tensor.data)
                tensor.data = poison_like(tensor)

    def real(self, tensor):
        """What lies under the poison of a tensor; the tensor itself if it has none."""
        return self._hidden.get(id(tensor), (None, tensor))[1]

    def lift(self):
        """Show the real tensors."""
        while self._hidden:
            tensor, real = self._hidden.popitem()[1]
            tensor.data = real


def poison_like(tensor):
    """A tensor of the same shape and dtype that nobody takes for a result."""
    dtype = tensor.dtype
    if dtype.is_floating_point or dtype.is_complex:
        value = float("nan")
    elif dtype == torch.bool:
        value = True
    else:
        info = torch.iinfo(dtype)
        value = info.min or info.max
    return torch.full_like(tensor.data, value)
