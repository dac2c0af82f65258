"""Charts of recorded calls: when each rank did what, how many bytes it moved, who talks to whom.

All take what `recorded.together` gives: [{rank: that rank's call}].
"""

from __future__ import annotations

from teachdist.pictures import svg
from teachdist.words import in_bytes

WIDTH = 720
LEFT = 84


def timeline(calls: list[dict]) -> str:
    """Every rank a row, every round a block from when it began to when it ended.

    Of large data each round has a block for each segment. The ranks must share a clock, as those
    of one host do.
    """
    ranks = _ranks(calls)
    records = [call for sides in calls for call in sides.values()]
    first = min(call.began for call in records)
    last = max(call.ended for call in records)
    span = max(last - first, 1e-9)
    scale = (WIDTH - LEFT - 20) / span
    row, top = 30, 46
    parts = [svg.text(12, 22, "When each rank was in which round", bold=True, size=14)]
    for place, rank in enumerate(ranks):
        y = top + place * row
        parts += _name(rank, y + 15)
        for sides in calls:
            if rank in sides:
                parts += _blocks(sides[rank], first, scale, y)
    bottom = top + len(ranks) * row
    for share in (0, 0.25, 0.5, 0.75, 1):
        x = LEFT + share * span * scale
        parts.append(svg.line(x, top - 4, x, bottom, stroke=svg.LINE))
        label = f"{share * span * 1e3:.3g} ms"
        parts.append(svg.text(x, bottom + 16, label, size=11, anchor="middle", fill=svg.SOFT))
    return svg.document(WIDTH, bottom + 26, "".join(parts), "Timeline of the recorded calls")


def traffic(calls: list[dict]) -> dict[tuple[int, int], int]:
    """Bytes from rank to rank over all calls, as their senders recorded them."""
    found: dict[tuple[int, int], int] = {}
    for sides in calls:
        for rank, call in sides.items():
            for step in call.rounds:
                for peer, (_, nbytes) in step.sends.items():
                    found[rank, peer] = found.get((rank, peer), 0) + nbytes
    return found


def bytes_per_rank(calls: list[dict]) -> str:
    """What each rank sent and received, as two bars."""
    moved = traffic(calls)
    ranks = range(max(_size(calls), 1))
    sent = {r: sum(n for (source, _), n in moved.items() if source == r) for r in ranks}
    got = {r: sum(n for (_, to), n in moved.items() if to == r) for r in ranks}
    most = max([*sent.values(), *got.values(), 1])
    row, top = 40, 40
    parts = [svg.text(12, 22, "Bytes per rank", bold=True, size=14)]
    for rank in ranks:
        y = top + rank * row
        parts += _name(rank, y + 20)
        for n, words, paint, down in (
            (sent[rank], "sent", svg.colour(rank), 2),
            (got[rank], "received", svg.LINE, 18),
        ):
            length = n / most * (WIDTH - LEFT - 210)
            parts.append(svg.rect(LEFT, y + down, length, 14, paint, stroke=svg.SOFT))
            label = f"{_count(n)} {words}"
            parts.append(svg.text(LEFT + length + 6, y + down + 11.5, label, size=11))
    height = top + len(ranks) * row + 8
    return svg.document(WIDTH, height, "".join(parts), "Bytes sent and received by each rank")


def matrix(calls: list[dict]) -> str:
    """Who talks to whom: a row for each sender, a column for each receiver, bytes in the cells."""
    moved = traffic(calls)
    size = _size(calls)
    most = max([*moved.values(), 1])
    cell = max(26, min(64, 560 // size))
    top = 66
    parts = [svg.text(12, 22, "Who talks to whom (bytes)", bold=True, size=14)]
    parts.append(svg.text(LEFT, 42, "to rank", size=11, fill=svg.SOFT))
    for rank in range(size):
        x = LEFT + rank * cell + cell / 2
        parts.append(svg.text(x, top - 6, rank, anchor="middle", bold=True))
        parts += _name(rank, top + rank * cell + cell / 2 + 5)
        for to in range(size):
            n = moved.get((rank, to), 0)
            share = n / most
            at = (LEFT + to * cell, top + rank * cell)
            shade = f'fill-opacity="{0.12 + 0.78 * share:.2f}"' if n else ""
            fill = svg.COLOURS[0] if n else "#fff"
            parts.append(svg.rect(*at, cell, cell, fill, stroke=svg.LINE, extra=shade))
            if n and cell >= 40:
                ink = "#fff" if share > 0.5 else svg.INK
                middle = (at[0] + cell / 2, at[1] + cell / 2 + 4)
                parts.append(svg.text(*middle, _count(n), size=11, anchor="middle", fill=ink))
    side = LEFT + size * cell + 16
    return svg.document(max(side, 260), top + size * cell + 14, "".join(parts), "Who talks to whom")


def words(calls: list[dict]) -> str:
    """The traffic as text."""
    lines = [f"{source} -> {to}: {_count(n)}" for (source, to), n in sorted(traffic(calls).items())]
    return "\n".join(lines) or "no messages were recorded"


def _blocks(call, first, scale, y):
    """The rounds of one call on one rank; its name over them where there is room."""
    for step in call.rounds:
        shade = f'fill-opacity="{1 if step.number % 2 else 0.6}"'
        for began, ended in step.spans:
            x, width = LEFT + (began - first) * scale, max((ended - began) * scale, 0.7)
            yield svg.rect(x, y, width, 20, svg.colour(call.rank), extra=shade)
            if width > 16:
                ink = svg.ON_COLOUR[call.rank % len(svg.COLOURS)]
                middle = x + width / 2
                yield svg.text(middle, y + 14, step.number, size=10, anchor="middle", fill=ink)
    outline = (LEFT + (call.began - first) * scale, y - 2, (call.ended - call.began) * scale, 24)
    yield svg.rect(*outline, "none", stroke=svg.INK)


def _name(rank, y):
    return [svg.rect(12, y - 10, 11, 11, svg.colour(rank), rx=2), svg.text(28, y, f"rank {rank}")]


def _ranks(calls):
    found = sorted({rank for sides in calls for rank in sides})
    if not found:
        raise ValueError("the trace holds no calls; make some inside `with teachdist.trace():`")
    return found


def _size(calls):
    _ranks(calls)
    return max(call.size for sides in calls for call in sides.values())


def _count(nbytes):
    return in_bytes(nbytes).replace("bytes", "B")
