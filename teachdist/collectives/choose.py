"""Which algorithm, when nobody says: small data wants few rounds, large data wants few bytes."""

from __future__ import annotations

from typing import NamedTuple

SMALL = 64 * 1024

_FEW_ROUNDS = {"all_reduce": "binomial", "all_gather": "direct", "reduce_scatter": "direct"}
_FEW_BYTES = {"all_reduce": "ring", "all_gather": "ring", "reduce_scatter": "ring"}
_ALWAYS = {
    "broadcast": "binomial",
    "reduce": "binomial",
    "gather": "linear",
    "scatter": "linear",
    "all_to_all": "pairwise",
    "barrier": "dissemination",
}


class Choice(NamedTuple):
    """The name of an algorithm and, in words, why it was taken."""

    name: str
    why: str


def choose(op: str, nbytes: int, size: int, topology=None, hosts=None) -> Choice:
    """The algorithm for `op` on `nbytes` bytes among `size` ranks. Equal inputs, equal answer."""
    if op in _ALWAYS:
        return Choice(_ALWAYS[op], "the usual one for this collective")
    if nbytes <= SMALL:
        return Choice(_FEW_ROUNDS[op], f"{nbytes} bytes are few: fewest rounds")
    return Choice(_FEW_BYTES[op], f"{nbytes} bytes are many: fewest bytes per rank")
