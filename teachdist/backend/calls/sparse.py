"""all_reduce of sparse tensors, from all_gathers of dense ones.

Ranks have entries in different places, so there is nothing to add element by element. Instead
everybody gets everybody's entries: first how many each rank has, then their indices and values,
one behind the other in order of rank; torch adds up those at the same place. The order is the same
everywhere, so all ranks get the same bits.

Cost: the number of all ranks' entries, on every rank. (The sum itself may be denser than each
part.)
"""

import torch

from teachdist.backend.calls.binding import all_gather_single
from teachdist.backend.calls.call import Call, describe, name_of
from teachdist.backend.calls.checks import DEVICES
from teachdist.backend.calls.flat import changing, flat
from teachdist.backend.calls.reduce_ops import reducer, short

_SUMS = {"SUM", "AVG", "PREMUL_SUM"}


def all_reduce_sparse(tensor, op, rank, size):
    """The three Calls of an all_reduce of a sparse COO tensor."""
    words = describe("all_reduce", tensor, "sparse", name_of(op))
    if tensor.device.type not in DEVICES:
        raise ValueError(f"{words}: tensor is on {tensor.device}; expected {' or '.join(DEVICES)}")
    how = reducer(op, tensor.dtype, words)
    if how.name not in _SUMS:
        raise ValueError(
            f"{words}: only sums ({', '.join(sorted(_SUMS))}) of sparse tensors are defined, as "
            "entries that are not stored count as 0; use to_dense()"
        )
    own = tensor.detach().coalesce().cpu()
    values = _Parts(how.before(own.values(), size), rank, f"{words}, values")
    indices = _Parts(own.indices(), rank, f"{words}, indices")
    counts = torch.empty(size, dtype=torch.int64)
    first = all_gather_single(counts, torch.tensor([own._nnz()]), rank, size)
    first.words = words
    first.agree += (short(tensor.dtype), tuple(tensor.shape), tensor.sparse_dim(), how.name)

    def counted():
        values.expect([(n, *tensor.shape[tensor.sparse_dim() :]) for n in counts.tolist()])
        indices.expect([(tensor.sparse_dim(), n) for n in counts.tolist()])

    def gathered():
        entries = torch.cat(indices.parts, dim=1), torch.cat(values.parts)
        total = torch.sparse_coo_tensor(*entries, tensor.shape).coalesce()
        how.after(total.values(), size)
        with changing(tensor):  # detach() would be another sparse tensor
            tensor.copy_(total)

    first.then = counted
    indices.call.then = gathered
    return [first, values.call, indices.call]


class _Parts:
    """An all_gather whose sizes become known only when the call before it is over."""

    def __init__(self, own, rank, words):
        self.parts = []
        self._own, self._rank = flat(own), rank
        self.call = Call("all_gather", self._bind, [], own.dtype, 0, words)

    def expect(self, shapes):
        """Make room for a part of each rank."""
        self.parts = [torch.empty(shape, dtype=self._own.dtype) for shape in shapes]
        self.call.nbytes = sum(part.nbytes for part in self.parts)
        self.call.agree = (short(self._own.dtype), tuple(shapes))

    def _bind(self, pieces):
        return {self._rank: self._own}, {s: t.view(-1) for s, t in enumerate(self.parts)}
