"""Who called what, one below the other: a column for each rank, arrows for messages.

MPI's textbooks draw programs so, and protocols are drawn so everywhere (as a message sequence
chart, turned by nothing: time goes down). What never ends is red.
"""

from teachdist.pictures import svg

WIDE, HIGH, TOP, LEFT = 150, 34, 64, 70  # units of a column, of a row, and of what is around
ROWS = 60


def ladder(title, columns, boxes, arrows) -> str:
    """An SVG. columns: names. boxes: (column, row, words, kind); arrows: (column, row) twice.

    kind: "done", "stuck" or "never" (begun by nobody who waits). Rows beyond 60 are left out, the
    first ones, since what went wrong is at the end.
    """
    last = max((row for _, row, _, _ in boxes), default=0)
    skip = max(last + 1 - ROWS, 0)
    place = lambda column, row: (LEFT + column * WIDE, TOP + (row - skip) * HIGH)  # noqa: E731
    bottom = TOP + (last + 1 - skip) * HIGH
    parts = [svg.text(12, 22, title, bold=True, size=14)]
    if skip:
        parts.append(svg.text(12, 40, f"{skip} rows above are not shown", size=11, fill=svg.SOFT))
    for column, name in enumerate(columns):
        x, _ = place(column, 0)
        parts.append(svg.text(x, TOP - 12, name, anchor="middle", bold=True))
        parts.append(svg.line(x, TOP - 4, x, bottom, stroke=svg.LINE, width=2))
    for begin, end in arrows:
        if min(begin[1], end[1]) >= skip:
            parts += _arrow(*place(*begin), *place(*end))
    for column, row, words, kind in boxes:
        if row >= skip:
            parts += _box(*place(column, row), words, kind)
    return svg.document(LEFT * 2 + WIDE * (len(columns) - 1), bottom + 14, "".join(parts), title)


def _box(x, y, words, kind):
    stroke = svg.LINE if kind == "done" else svg.BAD
    width = min(WIDE - 22, 12 + 6.6 * len(words))
    dash = 'stroke-dasharray="4 3"' if kind == "never" else ""
    yield svg.rect(x - width / 2, y, width, 20, svg.CARD, stroke=stroke, rx=4, extra=dash)
    yield svg.text(x, y + 14, words, size=11, anchor="middle", fill=svg.INK)


def _arrow(x1, y1, x2, y2):
    side = 1 if x2 > x1 else -1
    x1, x2, y1, y2 = x1 + side * 52, x2 - side * 52, y1 + 10, y2 + 10
    yield svg.line(x1, y1, x2, y2, stroke=svg.colour(4), width=1.5)
    yield svg.polyline([(x2 - side * 6, y2 - 4), (x2, y2), (x2 - side * 6, y2 + 4)], svg.colour(4))
