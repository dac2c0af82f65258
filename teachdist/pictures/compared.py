"""Predicted beside measured: for each call two bars on one scale.

The upper bar is what the cost model says, in three parts: latency, transfer, combining. The lower
one is what was measured. Takes what `tracing.compare` gives.
"""

from __future__ import annotations

from teachdist.pictures import svg
from teachdist.words import in_bytes, in_seconds

WIDTH = 720
LEFT, ROOM = 12, 110  # left edge of the bars; room for a time at their right ends
ROW = 64
PARTS = (("latency", svg.COLOURS[0]), ("transfer", svg.COLOURS[1]), ("combining", svg.COLOURS[2]))


def predicted_beside_measured(comparison) -> str:
    """The SVG of a `Comparison`."""
    rows = comparison.rows
    longest = max((max(row.predicted.seconds, row.measured) for row in rows), default=0) or 1.0
    scale = (WIDTH - LEFT - ROOM) / longest
    parts = [svg.text(LEFT, 22, "Predicted beside measured", bold=True, size=14), *_legend()]
    for number, row in enumerate(rows):
        parts += _row(row, 56 + number * ROW, scale)
    height = 56 + len(rows) * ROW
    return svg.document(WIDTH, height, "".join(parts), "Predicted beside measured times")


def _row(row, y, scale):
    price = row.predicted
    words = f"{row.words}: {price.name}, {in_bytes(price.nbytes)} on {price.ranks} ranks"
    yield svg.text(LEFT, y + 6, words)
    x = LEFT
    for name, paint in PARTS:
        width = (getattr(price, name) or 0.0) * scale
        yield svg.rect(x, y + 12, width, 14, paint)
        x += width
    end = LEFT + price.seconds * scale
    yield svg.rect(LEFT, y + 12, end - LEFT, 14, "none", stroke=svg.SOFT)
    yield svg.text(end + 6, y + 23, f"{in_seconds(price.seconds)} predicted", size=11)
    end = LEFT + row.measured * scale
    yield svg.rect(LEFT, y + 29, end - LEFT, 14, svg.LINE, stroke=svg.SOFT)
    yield svg.text(end + 6, y + 40, f"{in_seconds(row.measured)} measured", size=11)


def _legend():
    x = WIDTH - 250
    for name, paint in PARTS:
        yield svg.rect(x, 13, 11, 11, paint, rx=2)
        yield svg.text(x + 16, 22, name, size=11, fill=svg.SOFT)
        x += 82
