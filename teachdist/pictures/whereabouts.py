"""Where every rank is, as a table to project: a row per rank, and below it who waits for whom.

    rank 0   busy    cell 3, line 2: dist.barrier()             4 s
    rank 1   idle    idle
    rank 0 waits for rank 1 ...

The state is told by its word and its shape, not by colour alone: a filled disc works, a ring is at
rest, a cross is gone, a question mark does not answer.
"""

from __future__ import annotations

import textwrap

from teachdist.pictures import svg

WIDTH = 760
ROW = 26
LEFT, STATE, PLACE = 14, 96, 172
CHARACTERS = 68  # that fit in the width of the column "where"


def table(status, verdict: str = "") -> str:
    """The SVG of `status`, rows with the attributes rank, state, text and seconds."""
    parts = [svg.text(LEFT, 22, "Where each rank is", bold=True, size=14)]
    y = 34
    for number, one in enumerate(status):
        lines = textwrap.wrap(one.text, CHARACTERS) or [""]
        height = ROW + 16 * (len(lines) - 1)
        if number % 2 == 0:
            parts.append(svg.rect(1, y, WIDTH - 2, height, svg.CARD))
        parts += _row(one, lines, y + 17)
        y += height
    for line in textwrap.wrap(verdict, 96):
        y += 20
        parts.append(svg.text(LEFT, y, line, bold=True))
    return svg.document(WIDTH, y + 14, "".join(parts), "Where each rank is")


def _row(one, lines, y):
    yield svg.rect(LEFT, y - 10, 11, 11, svg.colour(one.rank), rx=2)
    yield svg.text(LEFT + 17, y, f"rank {one.rank}", bold=True)
    bad = one.state in ("dead", "silent")
    ink = svg.BAD if bad else svg.INK
    yield _sign(one.state, STATE + 5, y - 4.5, ink)
    yield svg.text(STATE + 18, y, one.state, fill=ink, bold=bad)
    for number, line in enumerate(lines):
        yield svg.text(PLACE, y + 16 * number, line)
    if one.seconds is not None:
        yield svg.text(WIDTH - 12, y, f"{one.seconds:.0f} s", anchor="end", fill=svg.SOFT)


def _sign(state, x, y, ink):
    if state == "dead":
        return svg.line(x - 4, y - 4, x + 4, y + 4, stroke=ink, width=2) + svg.line(
            x - 4, y + 4, x + 4, y - 4, stroke=ink, width=2
        )
    if state == "silent":
        return svg.text(x, y + 5, "?", anchor="middle", fill=ink, bold=True)
    fill = ink if state == "busy" else "none"
    return svg.rect(x - 4.5, y - 4.5, 9, 9, fill, stroke=ink, rx=4.5)
