"""Which algorithm, when nobody says: the one that `cost` says is fastest.

The idea: small data wants few rounds, large data wants few bytes, and where the border lies depends
on the machine. The cost model knows, so ask it, for all algorithms of the catalogue.

All ranks must choose alike, otherwise they would wait for messages that nobody sends. The choice is
a function of its arguments alone: ranks that agree on the topology agree on the algorithm. Times
are compared to nine digits, and of equal ones the first in the catalogue wins. Only what is in the
catalogue from the start is considered; a reader's own algorithm is used when asked for by name.

The size is rounded up to a power of two, so that a program with many sizes asks only a few times.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from teachdist.collectives.catalog import catalog, get
from teachdist.collectives.model.cost import as_topology, cost
from teachdist.collectives.schedule import definition_of
from teachdist.words import in_bytes, in_seconds


class Choice(NamedTuple):
    """The name of an algorithm and, in words, why it was taken."""

    name: str
    why: str


def choose(op: str, nbytes: int, size: int, topology=None, hosts=None) -> Choice:
    """The algorithm for `op` on `nbytes` bytes among `size` ranks. Equal inputs, equal answer.

    `topology` is a Topology or the name of a preset; `hosts` the host number of each rank.
    """
    definition_of(op)
    if size < 1 or nbytes < 0:
        raise ValueError(
            f"choose: needs at least 1 rank and 0 bytes, got {size} ranks and {nbytes} bytes"
        )
    bucket = 0 if nbytes == 0 else 1 << (int(nbytes) - 1).bit_length()
    placed = None if hosts is None else tuple(hosts)
    return _choose(op, bucket, size, as_topology(topology), placed)


@lru_cache(maxsize=4096)
def _choose(op, nbytes, size, topology, hosts) -> Choice:
    candidates = [
        (name, cost(name, op, nbytes, size, topology, hosts=hosts).seconds)
        for name in catalog()[op]
        if get(op, name).builtin and get(op, name).serves(size)
    ]
    ranking = sorted(candidates, key=lambda candidate: float(f"{candidate[1]:.9g}"))
    (best, seconds), *rest = ranking
    why = f"{best}: {in_seconds(seconds)} predicted"
    if op != "barrier":
        why += f" for {in_bytes(nbytes)}"
    why += f" on {size} ranks ({topology.name})"
    if rest:
        why += f"; next {rest[0][0]} {in_seconds(rest[0][1])}"
    if len(rest) > 1:
        why += f", last {rest[-1][0]} {in_seconds(rest[-1][1])}"
    return Choice(best, why)
