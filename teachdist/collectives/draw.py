r"""A picture of an algorithm's rounds: time goes down, ranks stand side by side.

The idea: between the messages of two rounds stands what every rank holds, one cell per chunk. A
cell has one stripe per rank, and the stripe of rank r (the r-th from the left, in r's colour) is
filled when r's contribution is in it: a full cell is a complete sum. An arrow is a message, in the
colour of its sender; "+3" beside it means that chunk 3 is added at the receiver, "3" that it is
stored there (and the arrow is dashed).

                rank 0      rank 1
                [#.][#.]    [.#][.#]
    round 0          \      /
                     +1  +0              chunk 1 to rank 1, chunk 0 to rank 0
                      /      \
                [##][#.]    [.#][##]
"""

from __future__ import annotations

from teachdist.collectives.checker.prove import resolve
from teachdist.collectives.frames import describe_rounds, frames, short_list
from teachdist.collectives.schedule import definition_of
from teachdist.collectives.svg import arrow, boxes, color, document, line, text

MOST_RANKS = 32
MOST_LABELS = 40  # per round; more can't be read
LEFT, TOP = 84, 64  # margins


def draw_svg(
    algorithm,
    op: str | None = None,
    size: int = 4,
    *,
    root: int = 0,
    hosts: tuple[int, ...] | None = None,
    chunks=None,
) -> str:
    """The rounds of an algorithm as an SVG picture (a str), for up to 32 ranks.

    A wrong algorithm is drawn up to the round in which it goes wrong, with the reason below.
    """
    if size > MOST_RANKS:
        raise ValueError(
            f"size: {size} ranks don't fit into a readable picture; draw at most {MOST_RANKS}, or "
            "use describe_rounds"
        )
    made = resolve(algorithm, op, chunks)
    film = frames(made, size, root=root, hosts=hosts)
    page = _Page(made, size, root, hosts)
    parts = page.heading()
    y = float(TOP)
    parts += page.state(film[0]["before"] if film else page.start(), y)
    for frame in film:
        y += page.state_height
        if frame["messages"]:
            parts += page.messages(frame, y)
            y += page.gap
        if frame["after"] is not None:
            parts += page.state(frame["after"], y)
        if frame["fault"]:
            parts.append(text(12, y + 28, frame["fault"], style="td-text td-bad"))
            page.width = max(page.width, 24 + 6.3 * len(frame["fault"]))
            y += 28
    parts += page.legend(y + page.state_height + 22)
    lines = describe_rounds(made, size, root=root, hosts=hosts)
    height = y + page.state_height + 36
    return document(page.width, height, page.title, ". ".join(lines), parts)


class _Page:
    """Where things are on the page."""

    def __init__(self, made, size, root, hosts):
        self.made, self.size, self.root, self.hosts = made, size, root, hosts
        self.chunks = made.chunks(size)
        self.per_line = self.chunks if self.chunks <= 8 else max(4, round(self.chunks**0.5))
        if made.op == "all_to_all":
            self.per_line = size
        self.cell = max(3 * size / 2, 36 if self.chunks == 1 else 16 if self.chunks <= 16 else 11)
        self.lines = -(-self.chunks // self.per_line)
        self.line_height = 18 if self.chunks <= 16 else 11
        self.state_height = self.lines * self.line_height + 6
        self.column = self.per_line * (self.cell + 2) + 22
        self.width = max(LEFT + size * self.column, 430)
        self.gap = min(max(70, self.width / 8), 150)  # the height of the arrows of a round
        self.title = f"{made.name} {made.op} on {size} rank{'s' if size > 1 else ''}"
        if definition_of(made.op).rooted:
            self.title += f", root {root}"

    def left(self, rank):
        return LEFT + rank * self.column

    def middle(self, rank):
        return self.left(rank) + (self.column - 22) / 2

    def start(self):
        """What is held before anything happens, when no round ever does."""
        begin = definition_of(self.made.op).start
        return [
            {str(chunk): [rank] for chunk in begin(rank, self.size, self.root, self.chunks)}
            for rank in range(self.size)
        ]

    def heading(self):
        parts = [text(12, 22, self.title, style="td-text td-ink")]
        for rank in range(self.size):
            parts.append(text(self.middle(rank), TOP - 10, f"rank {rank}", "middle"))
            if self.hosts is not None:
                label = f"host {self.hosts[rank]}"
                parts.append(text(self.middle(rank), TOP - 23, label, "middle", "td-small td-soft"))
        return parts

    def state(self, held, y):
        """A row of cells per rank, one cell per chunk, one stripe per contributor."""
        empty, full = [], []
        stripes: dict[int, list] = {}
        height = self.line_height - 2
        width = self.cell / self.size
        for rank, chunks in enumerate(held):
            for chunk in range(self.chunks):
                x = self.left(rank) + chunk % self.per_line * (self.cell + 2)
                top = y + chunk // self.per_line * self.line_height
                there = chunks.get(str(chunk))
                (empty if there is None else full).append((x, top, self.cell, height))
                for one in there or ():
                    stripes.setdefault(one, []).append((x + one * width, top, width, height))
        parts = [boxes(empty, "td-faint"), boxes(full, "td-box")]
        return parts + [boxes(where, fill=color(one)) for one, where in sorted(stripes.items())]

    def messages(self, frame, y):
        """The arrows of one round, and which chunks they carry."""
        parts = [
            line(12, y + self.gap / 2, self.width - 12, y + self.gap / 2, "td-faint"),
            text(12, y + self.gap / 2 - 5, f"round {frame['round']}", style="td-text td-soft"),
        ]
        labels = _Labels()
        crowded = len(frame["messages"]) > MOST_LABELS
        for message in frame["messages"]:
            start = self.middle(message["source"]), y + 2
            end = self.middle(message["to"]), y + self.gap - 6
            parts.append(arrow(*start, *end, color(message["source"]), not message["reduce"]))
            if not crowded:
                plus = "+" if message["reduce"] else ""
                labels.put(plus + short_list(message["chunks"]), start, end)
        return parts + labels.parts

    def legend(self, y):
        words = "cell: chunk, stripe: whose contribution; +c: chunk c is added, c: is stored"
        return [text(12, y, words, style="td-small td-soft")]


class _Labels:
    """Words on arrows, each at the first place along its arrow where no other is in the way."""

    def __init__(self):
        self.parts: list[str] = []
        self._taken: list[tuple[float, float, float]] = []

    def put(self, words, start, end):
        width = 6 * len(words) + 6
        places = [
            (start[0] + share * (end[0] - start[0]), start[1] + share * (end[1] - start[1]))
            for share in (0.3, 0.2, 0.4, 0.5, 0.6, 0.7, 0.8)
        ]
        x, y = next((place for place in places if self._free(*place, width)), places[0])
        self._taken.append((x, y, width))
        self.parts.append(boxes([(x - width / 2, y - 7, width, 13)], "td-back"))
        self.parts.append(text(x, y + 3, words, "middle", "td-small td-ink"))

    def _free(self, x, y, width):
        return not any(
            abs(x - other_x) < (width + other) / 2 and abs(y - other_y) < 11
            for other_x, other_y, other in self._taken
        )
