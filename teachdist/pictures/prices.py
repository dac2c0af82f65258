"""Prices as curves: predicted time over size and over ranks, above what no algorithm can beat.

The lower bounds: data that only one rank has needs ceil(lg p) rounds to reach all, or all to reach
one, since the number of those who know can at most double in a round; and what a rank must send or
receive takes its time, however cleverly. Neither can be avoided, so the greater of the two is a
bound.

Source of the bounds: Chan, Heimlich, Purkayastha, van de Geijn, "Collective communication: theory,
practice, and experience" (2007), table of lower bounds.
"""

from __future__ import annotations

from math import ceil, log2, log10

from teachdist.collectives import catalog, get
from teachdist.collectives.cost import as_topology, cost, in_bytes, in_seconds
from teachdist.pictures import svg

SIZES = tuple(4**k for k in range(2, 16))
RANKS = (2, 4, 8, 16, 32, 64, 128)
WIDTH, HEIGHT, LEFT, TOP, RIGHT = 720, 340, 70, 44, 170
DASHES = ("", "7 3", "2 3", "9 3 2 3")

# op: what the busiest port must carry and what must be combined, as shares of n given p ranks
_MUST = {
    "all_reduce": (lambda p: 2 * (p - 1) / p, lambda p: (p - 1) / p),
    "reduce": (lambda p: 1, lambda p: (p - 1) / p),
    "broadcast": (lambda p: 1, lambda p: 0),
    "all_gather": (lambda p: (p - 1) / p, lambda p: 0),
    "reduce_scatter": (lambda p: (p - 1) / p, lambda p: (p - 1) / p),
    "gather": (lambda p: (p - 1) / p, lambda p: 0),
    "scatter": (lambda p: (p - 1) / p, lambda p: 0),
    "all_to_all": (lambda p: (p - 1) / p, lambda p: 0),
    "barrier": (lambda p: 0, lambda p: 0),
}


def lower_bound(op, nbytes, ranks, topology=None) -> float:
    """Seconds that every algorithm for `op` needs at least; nbytes as `cost` counts it."""
    if ranks == 1:
        return 0.0
    where = as_topology(topology)
    alpha = min(where.alpha, where.alpha_between)
    beta = min(where.beta, where.beta_between)
    carried, combined = (share(ranks) for share in _MUST[op])
    return max(ceil(log2(ranks)) * alpha, nbytes * (carried * beta + combined * where.gamma))


def over_size(op, ranks=8, topology=None, names=None, highlight=None) -> str:
    """Predicted time of the algorithms for `op` over the size of the data."""
    curves = {
        name: [(n, cost(name, op, nbytes=n, ranks=ranks, topology=topology).seconds) for n in SIZES]
        for name in _names(op, (ranks,), names)
    }
    bound = [(n, lower_bound(op, n, ranks, topology)) for n in SIZES]
    title = f"{op} on {ranks} ranks ({as_topology(topology).name}): time over size"
    return _chart(title, curves, bound, in_bytes, highlight)


def over_ranks(op, nbytes=1 << 20, topology=None, names=None, highlight=None) -> str:
    """Predicted time of the algorithms for `op` over the number of ranks."""
    curves = {}
    for name in _names(op, RANKS, names):
        served = [p for p in RANKS if get(op, name).serves(p)]
        curves[name] = [(p, _price(name, op, nbytes, p, topology)) for p in served]
    curves = {name: [point for point in c if point[1]] for name, c in curves.items()}
    bound = [(p, lower_bound(op, nbytes, p, topology)) for p in RANKS]
    title = f"{op} of {in_bytes(nbytes)} ({as_topology(topology).name}): time over ranks"
    return _chart(title, curves, bound, lambda p: f"{p:g} ranks", highlight)


def _price(name, op, nbytes, ranks, topology):
    try:
        return cost(name, op, nbytes=nbytes, ranks=ranks, topology=topology).seconds
    except ValueError:  # too many ranks to simulate, and no formula
        return None


def _names(op, sizes, names):
    return [n for n in names or catalog()[op] if any(get(op, n).serves(p) for p in sizes)]


def _chart(title, curves, bound, x_words, highlight):
    """Curves over logarithmic axes, named at their right ends."""
    points = [point for curve in [*curves.values(), bound] for point in curve if point[1] > 0]
    xs, ys = [log10(x) for x, _ in points], [log10(y) for _, y in points]
    low, high = int(min(ys) // 1), -int(-max(ys) // 1)
    right, bottom = WIDTH - RIGHT, HEIGHT - 36

    def at(x, y):
        across = (log10(x) - min(xs)) / max(max(xs) - min(xs), 1e-9)
        up = (log10(y) - low) / max(high - low, 1)
        return LEFT + across * (right - LEFT), bottom - up * (bottom - TOP)

    parts = [svg.text(12, 22, title, bold=True, size=14)]
    for power in range(low, high + 1):
        _, y = at(10 ** min(xs), 10.0**power)
        parts.append(svg.line(LEFT, y, right, y, stroke=svg.LINE))
        label = in_seconds(10.0**power)
        parts.append(svg.text(LEFT - 6, y + 4, label, size=11, anchor="end", fill=svg.SOFT))
    for x, _ in bound[:: max(1, len(bound) // 5)]:
        across, _ = at(x, 10.0**low)
        label = x_words(x)
        parts.append(svg.text(across, bottom + 18, label, size=11, anchor="middle", fill=svg.SOFT))
    parts.append(_curve([at(*p) for p in bound if p[1] > 0], svg.SOFT, 6, 'stroke-opacity="0.35"'))
    ends = []
    for number, (name, curve) in enumerate(curves.items()):
        drawn = [at(*p) for p in curve if p[1] > 0]
        width = 4 if name == highlight else 2
        dash = DASHES[number // len(svg.COLOURS) % len(DASHES)]
        parts.append(_curve(drawn, svg.colour(number), width, f'stroke-dasharray="{dash}"'))
        ends.append((drawn[-1][1], name, svg.colour(number), dash, name == highlight))
    ends.append((at(*bound[-1])[1], "lower bound", svg.SOFT, "", False))
    parts += _legend(ends, right, bottom)
    return svg.document(WIDTH, HEIGHT, "".join(parts), title)


def _curve(points, paint, width, extra):
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return (
        f'<polyline points="{path}" fill="none" stroke="{paint}" stroke-width="{width}" {extra}/>'
    )


def _legend(ends, right, bottom):
    """The names from top to bottom as the curves end, pushed apart where they would meet."""
    ends = sorted(ends)
    step = min(15, (bottom - TOP) / len(ends))
    places = [end for end, *_ in ends]
    for i in range(1, len(places)):
        places[i] = max(places[i], places[i - 1] + step)
    places[-1] = min(places[-1], bottom)
    for i in range(len(places) - 2, -1, -1):
        places[i] = min(places[i], places[i + 1] - step)
    for y, (_, name, paint, dash, bold) in zip(places, ends, strict=True):
        yield svg.line(
            right + 8, y, right + 30, y, stroke=paint, width=3, extra=f'stroke-dasharray="{dash}"'
        )
        yield svg.text(right + 36, y + 4, name, size=12, bold=bold)
