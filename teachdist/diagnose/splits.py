"""all_to_all whose splits do not fit: which pair of ranks disagrees, and what each rank said.

What rank s sends to rank r is what r must expect from s: seen as matrices, the splits of the inputs
are the transpose of those of the outputs. Each rank knows one row of both; the board has all rows.

    sends         to 0  to 1         expects  from 0  from 1
    rank 0           1     3         rank 0        1       2     <- rank 1 sends 1, not 2
    rank 1           1     1         rank 1        3       1
"""

import json
import re

from teachdist.words import table

_SPLITS = re.compile(r"sends=(\[[\d, ]*\]), receives=(\[[\d, ]*\])")
_EACH = re.compile(r"(\d+) elements each")
_ROWS = re.compile(r"all_to_all_single\(\w+\[(\d+)")
_MOST = 16  # ranks that a table shows


def told(sends, receives):
    """The splits as words of a call; none if all are equal, or if they are too many for a page."""
    equal = len({*sends, *receives}) == 1
    if equal or len(sends) > _MOST:
        return ()
    return f"sends={list(sends)}", f"receives={list(receives)}"


def disagreement(calls):
    """What is wrong with the splits of these calls, {rank: words}; "" if it is something else."""
    if not calls or any(not call.startswith("all_to_all") for call in calls.values()):
        return ""
    known = {rank: _of(call, len(calls)) for rank, call in calls.items()}
    ranks = sorted(known)
    if None in known.values() or any(
        len(row) != len(ranks) for pair in known.values() for row in pair
    ):
        return ""
    unit = "rows" if next(iter(calls.values())).startswith("all_to_all_single") else "elements"
    for s, sender in enumerate(ranks):
        for r, receiver in enumerate(ranks):
            sent, expected = known[sender][0][r], known[receiver][1][s]
            if sent != expected:
                return (
                    f"the splits do not fit: rank {sender} sends {sent} {unit} to rank {receiver}, "
                    f"which expects {expected} from it. What a rank sends to another is what that "
                    f"one must receive from it.\n{_matrix(ranks, known)}"
                )
    return ""


def _of(call, size):
    """(what a rank sends to each, what it receives from each), or None."""
    if found := _SPLITS.search(call):
        return json.loads(found[1]), json.loads(found[2])
    if found := _EACH.search(call):
        return [int(found[1])] * size, [int(found[1])] * size
    rows = _ROWS.match(call)
    if rows is None or int(rows[1]) % size:
        return None
    return [int(rows[1]) // size] * size, [int(rows[1]) // size] * size


def _matrix(ranks, known):
    head = ["", *(f"to {r}" for r in ranks), *(f"from {r}" for r in ranks)]
    rows = [[f"rank {r}", *map(str, known[r][0]), *map(str, known[r][1])] for r in ranks]
    return table([head, *rows])
