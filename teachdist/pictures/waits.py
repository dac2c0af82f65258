r"""When each rank computed, waited and moved bytes, with the critical path through the ranks.

    rank 0   [computing][waits .......][tr][computing]
    rank 1   [computing late          ][tr][computing]
                                      \__ the path: what would have to be shorter

The path is what the end of the run was waiting for at each moment: no time off it can be saved.
"""

from __future__ import annotations

from teachdist.pictures import svg
from teachdist.words import in_seconds

WIDTH, LEFT, TOP, ROW = 760, 84, 54, 26
COLOUR = {"computing": "#4e79a7", "waiting": "#d0d7de", "transfer": "#f28e2b"}
WORDS = {
    "computing": "computing",
    "waiting": "waiting for a rank",
    "transfer": "communication that is not hidden",
}


def waits(rows: dict, path: list, window: tuple, title: str) -> str:
    """The picture, as SVG.

    rows: {rank: [(kind, begin, end)]}. path: [(rank, begin, end)], in order of time. window:
    (begin, end) of what is drawn. All in seconds.
    """
    begin, end = window
    scale = (WIDTH - LEFT - 20) / max(end - begin, 1e-12)
    parts = [svg.text(12, 22, title, bold=True, size=14), *_legend()]
    height = ROW if len(rows) <= 16 else max(5, 420 // len(rows))
    place = {rank: TOP + number * height for number, rank in enumerate(rows)}
    for number, (rank, segments) in enumerate(rows.items()):
        y = place[rank]
        if len(rows) <= 16 or number % (len(rows) // 8) == 0:
            parts.append(svg.text(12, y + height / 2 + 4, f"rank {rank}", size=11))
        for kind, first, last in _inside(segments, begin, end):
            x, width = LEFT + (first - begin) * scale, (last - first) * scale
            parts.append(svg.rect(x, y, width, height - min(4, height // 3), COLOUR[kind]))
    parts += _path(path, place, height, begin, end, scale)
    bottom = TOP + len(rows) * height
    for share in (0, 0.25, 0.5, 0.75, 1):
        label = in_seconds(begin + share * (end - begin))
        x = LEFT + share * (WIDTH - LEFT - 20)
        parts.append(svg.text(x, bottom + 16, label, size=11, anchor="middle", fill=svg.SOFT))
    return svg.document(WIDTH, bottom + 26, "".join(parts), title)


def _inside(segments, begin, end):
    """Segments cut to the window; what is shorter than a pixel's fraction is left out."""
    least = (end - begin) / (4 * WIDTH)
    for kind, first, last in segments:
        first, last = max(first, begin), min(last, end)
        if last - first >= least:
            yield kind, first, last


def _path(path, place, height, begin, end, scale):
    points = []
    for rank, first, last in path:
        first, last = max(first, begin), min(last, end)
        if last > first and rank in place:
            y = place[rank] + (height - 4) / 2
            points += [(LEFT + (first - begin) * scale, y), (LEFT + (last - begin) * scale, y)]
    return [svg.polyline(points, svg.BAD)] if points else []


def _legend():
    x = 12
    for kind, words in WORDS.items():
        yield svg.rect(x, 31, 10, 10, COLOUR[kind])
        yield svg.text(x + 14, 40, words, size=11, fill=svg.SOFT)
        x += 30 + 6.2 * len(words)
    yield svg.line(x, 36, x + 14, 36, stroke=svg.BAD, width=2)
    yield svg.text(x + 18, 40, "critical path", size=11, fill=svg.SOFT)
