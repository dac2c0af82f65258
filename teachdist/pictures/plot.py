"""Predicted time over message size or over the number of ranks: one curve per algorithm.

The idea: no algorithm is best everywhere, and one picture shows where each is. Both axes are
logarithmic. The dashed line is the lower bound: the largest of the least latency, the least
transfer and the least combining; no algorithm can be below it.
"""

from __future__ import annotations

from math import ceil, floor, log10
from typing import NamedTuple

from teachdist.collectives.catalog import catalog, get
from teachdist.collectives.model.cost import as_topology, cost
from teachdist.collectives.model.formula import lower_bound
from teachdist.pictures import svg
from teachdist.words import in_bytes, in_seconds

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 420, 64, 190, 40, 44


class Curve(NamedTuple):
    """Predicted seconds of one algorithm at points (bytes or ranks)."""

    name: str
    points: list[tuple[float, float]]


def curves(op, *, nbytes=1 << 20, ranks=8, topology=None, algorithms=None) -> list[Curve]:
    """Predicted times: give several `nbytes` or several `ranks` (not both), as a list.

    The last curve is the lower bound. Sizes that an algorithm doesn't serve are left out.
    """
    topology = as_topology(topology)
    over_bytes = not isinstance(nbytes, int)
    if over_bytes == (not isinstance(ranks, int)):
        raise ValueError("curves: give either several nbytes or several ranks, as a list")
    cases = [(n, ranks) for n in nbytes] if over_bytes else [(nbytes, p) for p in ranks]
    found = []
    for name in algorithms or catalog()[op]:
        points = [
            (float(n if over_bytes else p), cost(name, op, n, p, topology).seconds)
            for n, p in cases
            if get(op, name).serves(p)
        ]
        found.append(Curve(name, points))
    bound = [
        (float(n if over_bytes else p), lower_bound(op, n, p, topology).seconds) for n, p in cases
    ]
    return [*found, Curve("lower bound", bound)]


def plot_cost(op, *, nbytes=1 << 20, ranks=8, topology=None, algorithms=None) -> str:
    """`curves` as an SVG picture (a str)."""
    drawn = curves(op, nbytes=nbytes, ranks=ranks, topology=topology, algorithms=algorithms)
    # Neither zero bytes nor zero seconds have a place on a logarithmic axis.
    drawn = [Curve(c.name, [(x, y) for x, y in c.points if x > 0 and y > 0]) for c in drawn]
    drawn = [curve for curve in drawn if curve.points]
    if not drawn:
        raise ValueError(f"plot_cost: no time above 0 to draw for {op}; give more bytes or ranks")
    over_bytes = not isinstance(nbytes, int)
    xs = [x for curve in drawn for x, _ in curve.points]
    ys = [y for curve in drawn for _, y in curve.points]
    x_axis = _Axis(min(xs), max(xs), LEFT, WIDTH - RIGHT)
    y_axis = _Axis(min(ys), max(ys), HEIGHT - BOTTOM, TOP)
    fixed = f"{ranks} ranks" if over_bytes else in_bytes(nbytes)
    title = f"{op}: predicted time, {fixed}, {as_topology(topology).name}"
    parts = [svg.text(12, 22, title, bold=True, size=14)]
    foot, side = HEIGHT - BOTTOM, WIDTH - RIGHT
    for value in x_axis.ticks(2.0):
        x, label = x_axis(value), in_bytes(value) if over_bytes else f"{value:g}"
        parts.append(svg.line(x, TOP, x, foot, stroke=svg.LINE))
        parts.append(svg.text(x, foot + 16, label, size=11, anchor="middle", fill=svg.SOFT))
    for value in y_axis.ticks(10.0):
        y, label = y_axis(value), in_seconds(value)
        parts.append(svg.line(LEFT, y, side, y, stroke=svg.LINE))
        parts.append(svg.text(LEFT - 6, y + 4, label, size=11, anchor="end", fill=svg.SOFT))
    words = "bytes" if over_bytes else "ranks"
    parts.append(svg.text((LEFT + side) / 2, HEIGHT - 8, words, anchor="middle"))
    parts += _lines_with_names(drawn, x_axis, y_axis)
    return svg.document(WIDTH, HEIGHT, "".join(parts), title)


class _Axis:
    """A logarithmic axis from pixel `start` to pixel `end`."""

    def __init__(self, low, high, start, end):
        self.low, self.high = log10(low), max(log10(high), log10(low) + 0.31)
        self.start, self.end = start, end

    def __call__(self, value):
        share = (log10(value) - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self, base):
        """Powers of `base` in the axis, thinned out to at most nine."""
        first, last = ceil(self.low / log10(base) - 1e-9), floor(self.high / log10(base) + 1e-9)
        step = max(1, ceil((last - first + 1) / 9))
        return [base**exponent for exponent in range(first, last + 1, step)]


def _lines_with_names(drawn, x_axis, y_axis):
    """The curves, each with its name at its right end, names moved apart where they would touch."""
    parts = []
    ends = []
    for number, curve in enumerate(drawn):
        bound = curve.name == "lower bound"
        stroke = svg.SOFT if bound else svg.colour(number)
        points = [(x_axis(x), y_axis(y)) for x, y in curve.points]
        parts.append(svg.polyline(points, stroke, dashed=bound or number >= len(svg.COLOURS)))
        ends.append((points[-1][1], points[-1][0], curve.name, stroke))
    lowest = 0.0
    for y, x, name, stroke in sorted(ends):
        place = max(y, lowest + 15)
        lowest = place
        parts.append(svg.polyline([(x, y), (WIDTH - RIGHT + 12, place)], stroke, dashed=True))
        parts.append(svg.text(WIDTH - RIGHT + 16, place + 4, name))
    return parts
