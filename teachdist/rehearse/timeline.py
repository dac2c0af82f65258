"""The timeline of a rehearsal: a picture, and a file for Perfetto.

The picture has a row for each rank, or one for several if there are many, and colours for what
they did. A small piece of it shows what took most of that time, on the ranks of that row together,
so it stays readable, and small, at a thousand ranks.

The file has a track for each rank, with each stretch of computing, each wait and the call that it
was for, and a track for each group with its collectives (https://ui.perfetto.dev opens it).
"""

import json
import os
from pathlib import Path

from teachdist.pictures import svg
from teachdist.words import in_seconds

WIDTH, LEFT, COLUMNS, ROWS = 720, 84, 240, 64
COLOUR = {"compute": "#4e79a7", "transfer": "#f28e2b", "wait": "#d0d7de", "sleep": "#b07aa1"}
WORDS = {
    "compute": "computing",
    "transfer": "exposed communication",
    "wait": "waiting for a rank",
    "sleep": "sleeping",
}


class Timeline:
    """What each rank did when. In a notebook it shows itself; `save` writes a file for Perfetto."""

    def __init__(self, clocks, calls):
        self._clocks, self._calls = clocks, calls
        self.seconds = max((clock.time for clock in clocks), default=0.0)

    def __repr__(self):
        return f"timeline of {len(self._clocks)} ranks, {in_seconds(self.seconds)}"

    def _repr_html_(self):
        return svg.image(self.svg(), repr(self))

    # -- the picture ----------------------------------------------------------------------------

    def svg(self):
        """The picture, as SVG."""
        ranks = len(self._clocks)
        rows = min(ranks, ROWS)
        height = 22 if rows <= 8 else max(4, 360 // rows)
        top, parts = 50, [svg.text(12, 22, "What each rank did when", bold=True, size=14)]
        parts += _legend()
        for row in range(rows):
            mine = range(row * ranks // rows, (row + 1) * ranks // rows)
            y = top + row * height
            if rows <= 16 or row % (rows // 8) == 0:
                parts.append(svg.text(12, y + max(height / 2 + 4, 8), _name(mine), size=11))
            parts += self._row(mine, y, height)
        bottom = top + rows * height
        for share in (0, 0.25, 0.5, 0.75, 1):
            x = LEFT + share * (WIDTH - LEFT - 20)
            label = in_seconds(share * self.seconds)
            parts.append(svg.text(x, bottom + 16, label, size=11, anchor="middle", fill=svg.SOFT))
        return svg.document(WIDTH, bottom + 26, "".join(parts), repr(self))

    def _row(self, ranks, y, height):
        """Equal neighbours are one block."""
        kinds = self._columns(ranks)
        width = (WIDTH - LEFT - 20) / COLUMNS
        begin = 0
        for column in range(1, COLUMNS + 1):
            if column == COLUMNS or kinds[column] != kinds[begin]:
                if kinds[begin] is not None:
                    x = LEFT + begin * width
                    wide = (column - begin) * width
                    yield svg.rect(x, y, wide, height - (height > 6), COLOUR[kinds[begin]])
                begin = column

    def _columns(self, ranks):
        """What took most of each of `COLUMNS` pieces of time on these ranks; None for nothing."""
        shares = [{} for _ in range(COLUMNS)]
        piece = self.seconds / COLUMNS or 1.0
        for rank in ranks:
            for kind, begin, end, _ in self._clocks[rank].events:
                first = min(int(begin / piece), COLUMNS - 1)
                last = min(int(end / piece), COLUMNS - 1)
                for column in range(first, last + 1):
                    inside = min(end, (column + 1) * piece) - max(begin, column * piece)
                    shares[column][kind] = shares[column].get(kind, 0.0) + inside
        return [max(share, key=share.get) if share else None for share in shares]

    # -- the file ------------------------------------------------------------------------------

    def events(self):
        """The events of the Trace Event Format: times in microseconds."""
        found = _named(0, "ranks")
        for number, clock in enumerate(self._clocks):
            found += _named(0, f"rank {number}", number)
            for kind, begin, end, words in clock.events:
                name = words if words and kind != "compute" else WORDS[kind]
                found.append(_block(0, number, name, begin, end, {"what": WORDS[kind]}))
        found += _named(1, "groups")
        tracks = {}
        for group, words, began, until, ranks in self._calls:
            if group not in tracks:
                tracks[group] = len(tracks)
                found += _named(1, f'group "{group[0] or "local"}" of {ranks}', tracks[group])
            found.append(_block(1, tracks[group], words, began, until, {}))
        return found

    def save(self, path):
        """Write it as JSON for Perfetto; the path."""
        path = Path(path)
        part = path.with_name(path.name + ".part")
        part.write_text(json.dumps({"traceEvents": self.events(), "displayTimeUnit": "ms"}))
        os.replace(part, path)
        return path


def _block(process, track, name, begin, end, facts):
    times = {"ts": begin * 1e6, "dur": (end - begin) * 1e6}
    return {"ph": "X", "pid": process, "tid": track, "name": name, **times, "args": facts}


def _named(process, name, track=None):
    if track is None:
        return [{"ph": "M", "pid": process, "name": "process_name", "args": {"name": name}}]
    about = {"ph": "M", "pid": process, "tid": track}
    return [
        {**about, "name": "thread_name", "args": {"name": name}},
        {**about, "name": "thread_sort_index", "args": {"sort_index": track}},
    ]


def _name(ranks):
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {ranks[0]}-{ranks[-1]}"


def _legend():
    x = 12
    for kind, words in WORDS.items():
        yield svg.rect(x, 30, 10, 10, COLOUR[kind])
        yield svg.text(x + 14, 39, words, size=11, fill=svg.SOFT)
        x += 30 + 6.2 * len(words)
