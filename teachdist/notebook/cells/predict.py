"""``%%ranks --predict``: say first, then look.

Comment lines of the cell say what ranks will answer; after the run both stand side by side:

    # predict rank 0: tensor([6.])
    # predict ranks 1-3: tensor([0.])
    # predict: 4                          (all ranks that have no line of their own)

Several lines for the same ranks are lines of one answer. Spaces do not count, and neither does
the point in ``6.``: what counts is whether the idea was right. A wrong prediction is no error.
"""

import re

from teachdist.notebook.cells.outputs import group, parse_ranks, parts
from teachdist.words import ranks_label, table

_LINE = re.compile(r"^\s*#\s*predict(?:\s+ranks?\s+(?P<ranks>[\d,\s-]+?))?\s*:\s?(?P<text>.*)$")
_POINT = re.compile(r"(?<!\d)(\d+)\.0*(?!\d)")
_EVERYBODY = "all"


def predictions(cell, on):
    """``{rank: text}`` from the comment lines of a cell, for the ranks ``on``."""
    said = {}
    for line in cell.splitlines():
        found = _LINE.match(line)
        if found:
            key = found["ranks"]
            whom = (_EVERYBODY,) if key is None else tuple(parse_ranks(key))
            said.setdefault(whom, []).append(found["text"].rstrip())
    by_rank = dict.fromkeys(on, said.pop((_EVERYBODY,), None))
    for whom, lines in said.items():
        by_rank.update({rank: lines for rank in whom if rank in by_rank})
    return {rank: "\n".join(lines) for rank, lines in by_rank.items() if lines is not None}


def answer(items):
    """What a rank really said, as text."""
    return "".join(
        part[1] if part[0] == "text" else part[1].get("text/plain", "<picture>") + "\n"
        for part in parts(items)
    ).rstrip("\n")


def alike(predicted, got):
    """Whether two answers say the same."""
    return _bare(predicted) == _bare(got)


def _bare(text):
    return _POINT.sub(r"\1", "".join(text.split()))


def compare(predicted, got):
    """A table: ranks, predicted, got, and whether they agree.

    Both are ``{rank: text}``.
    """
    pairs = {rank: (predicted.get(rank, "(nothing)"), got[rank]) for rank in got}
    rows = [("", "predicted", "got", "")]
    right = 0
    for ranks, (before, after) in group(pairs):
        agrees = alike(before, after)
        right += len(ranks) * agrees
        rows.append((ranks_label(ranks), before, after, "yes" if agrees else "no"))
    return f"{table(rows)}\n{right} of {len(got)} ranks as predicted"
