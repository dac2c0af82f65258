"""Predicted beside measured: what the cost model says of the calls that were recorded.

The idea: a model is worth what it predicts. A trace knows everything that the model asks for (the
algorithm, the bytes, the ranks and their hosts, and the prices that the group agreed on), so each
recorded call can be held against its price.

What counts as measured: a rank that comes early waits for the others, and that is no cost of the
collective. So the time runs from when the last rank came to when the last one left. (That needs a
common clock, which the ranks of one host have. Between hosts, and from one rank's trace, it is the
shortest time that any rank spent in the call.)

Far off? The model knows no cache, no busy machine, no Python. `teachdist calibrate` measures this
machine's own prices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from teachdist.collectives import Cost, catalog
from teachdist.pictures.recorded import together
from teachdist.words import in_bytes, in_seconds, table


class Compared(NamedTuple):
    """One call: in words, its predicted Cost, and the measured seconds."""

    words: str
    predicted: Cost
    measured: float

    @property
    def ratio(self) -> float:
        """How many times as long as predicted it took; inf if nothing was predicted to cost."""
        return self.measured / self.predicted.seconds if self.predicted.seconds else float("inf")


@dataclass(frozen=True)
class Comparison:
    """All calls of some traces, `rows` in the order in which they were made; as text, a table."""

    rows: tuple[Compared, ...]

    def __str__(self):
        if not self.rows:
            return "no collective was called"
        lines = [("call", "algorithm", "bytes", "predicted", "measured", "")]
        for row in self.rows:
            price = row.predicted
            lines.append(
                (
                    row.words,
                    price.name,
                    in_bytes(price.nbytes),
                    in_seconds(price.seconds),
                    in_seconds(row.measured),
                    f"x {row.ratio:.2g}",
                )
            )
        return table(lines)

    __repr__ = __str__


def compare(traces, topology=None) -> Comparison:
    """Predicted beside measured for every call of one trace, or of several ranks' traces.

    `topology`: a Topology or the name of a preset, instead of the one that the group agreed on.
    Calls that a native backend made have no price and are left out.
    """
    rows = []
    for sides in together(traces):
        call = next(iter(sides.values()))
        if not call.rounds and call.algorithm not in catalog()[call.op]:
            continue
        words = call.words.partition(" at ")[0]
        rows.append(Compared(words, call.predicted(topology), _measured(list(sides.values()))))
    return Comparison(tuple(rows))


def _measured(calls) -> float:
    one_clock = len(set(calls[0].hosts or (0,))) == 1
    if len(calls) > 1 and one_clock:
        return max(call.ended for call in calls) - max(call.began for call in calls)
    return min(call.seconds for call in calls)
