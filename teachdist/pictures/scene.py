"""Scenes: the rounds of a collective as plain data that a player or a picture is drawn from.

The idea: everything that can be stepped through (an algorithm of the catalogue, the reader's own
generator, a counter-example, a recorded call) becomes one and the same small dictionary of JSON,
so there is one player, not four. It holds who starts with what and which messages each round
carries; what the ranks hold in between follows from that, and the player works it out itself.

    {"title", "meaning", "op", "size", "chunks", "reduces", "layout", "columns", "hosts", "labels",
     "start": [{chunk: [contributors]} for each rank], "end": the same, what must be reached,
     "rounds": [{"moves": [{"from", "to", "chunks", "adds", "lost"}], "note", "values"}],
     "fault": {"round", "rank", "chunk", "sentence"} or None}

"values", where a call was recorded with them, are the numbers behind the contributors: {rank: what
its chunks held after the round, as text}.

Plain Python, so the browser's Python can make scenes too.
"""

from __future__ import annotations

from teachdist.collectives import Recv, Reduce, Send
from teachdist.collectives.checker.faults import Fault
from teachdist.collectives.checker.prove import resolve
from teachdist.collectives.checker.symbolic import Execution
from teachdist.collectives.schedule import definition_of, members

LAYOUTS = ("ring", "line", "grid")
MOST_RANKS = 32


def scene(
    algorithm, op=None, ranks=4, *, root=0, hosts=None, chunks=None, layout=None, columns=None
) -> dict:
    """The scene of an algorithm: a name, an Algorithm or a bare generator function (then with op).

    `layout` is "ring", "line" or "grid" with `columns`; when not given, the algorithm's nature
    decides. A wrong algorithm gives the scene up to its first fault, with `fault` filled in.
    """
    made = resolve(algorithm, op, chunks)
    if not 1 <= ranks <= MOST_RANKS:
        raise ValueError(f"ranks: a picture holds 1 to {MOST_RANKS} ranks, got {ranks}")
    run = Execution(made, ranks, root, hosts)
    rounds, fault = _execute(run)
    title = f"{made.op} by {made.name}, {ranks} rank{'s' if ranks > 1 else ''}"
    if definition_of(made.op).rooted:
        title += f", root {root}"
    found = frame(made.op, ranks, run.chunks, root=root, title=title)
    found.update(rounds=rounds, fault=fault, hosts=list(hosts) if hosts else None)
    return placed(found, layout, columns)


def frame(op, size, chunks, *, root=0, title) -> dict:
    """A scene without rounds: the definition's start and end."""
    definition = definition_of(op)
    return {
        "title": title,
        "meaning": definition.meaning[0].upper() + definition.meaning[1:] + ".",
        "op": op,
        "size": size,
        "chunks": chunks,
        "reduces": definition.reduces,
        "labels": _labels(op, size),
        "start": _holdings(definition.start, size, root, chunks),
        "end": _holdings(definition.end, size, root, chunks),
        "rounds": [],
        "hosts": None,
        "fault": None,
    }


def placed(found, layout=None, columns=None) -> dict:
    """The scene with a layout: the one asked for, or one that fits its messages."""
    if layout is not None and layout not in LAYOUTS:
        raise ValueError(f"layout: choose one of {', '.join(LAYOUTS)}, got {layout!r}")
    if columns is not None and columns < 1:
        raise ValueError(f"columns: at least 1, got {columns}")
    found["layout"] = layout or ("grid" if found["hosts"] or columns else _fitting(found))
    found["columns"] = columns or _host_columns(found["hosts"])
    return found


def moves_of(actions) -> list[dict]:
    """The messages of one round, `actions` being what each rank does: [[Send | Recv | Reduce]]."""
    takes = {
        (action.source, rank, action.chunk): type(action)
        for rank, mine in enumerate(actions)
        for action in mine
        if type(action) is not Send
    }
    found: dict[tuple, list[int]] = {}
    for rank, mine in enumerate(actions):
        for action in mine:
            if type(action) is Send:
                how = takes.get((rank, action.to, action.chunk))
                found.setdefault((rank, action.to, how), []).append(action.chunk)
    return [move(source, to, chunks, how) for (source, to, how), chunks in found.items()]


def move(source, to, chunks, how) -> dict:
    """One message; `how` it is taken: Recv, Reduce, or None if nobody takes it."""
    made = {"from": source, "to": to, "chunks": sorted(chunks), "adds": how is Reduce}
    return made if how in (Recv, Reduce) else {**made, "lost": True}


def _execute(run: Execution):
    """All rounds as moves; and the fault, if there is one, its own round being the last."""
    rounds = []
    done = run.actions
    try:
        while (actions := run.step()) is not None:
            rounds.append({"moves": moves_of(actions)})
            done = actions
        run.check_end()
    except Fault as fault:
        if run.actions is not done:  # the round was begun, and went wrong
            rounds.append({"moves": moves_of(run.actions)})
        return rounds, {
            "round": len(rounds) - 1 if fault.round is None else fault.round,
            "rank": fault.rank,
            "chunk": fault.chunk,
            "sentence": fault.sentence,
        }
    return rounds, None


def _holdings(holding, size, root, chunks):
    return [
        {chunk: members(bits) for chunk, bits in holding(rank, size, root, chunks).items()}
        for rank in range(size)
    ]


def _labels(op, size):
    """Names of chunks where the number alone says little."""
    if op != "all_to_all":
        return None
    return [f"{source}→{to}" for source in range(size) for to in range(size)]


def _fitting(found) -> str:
    """A ring if all go to neighbours on the ring, a line for everything else that has an order."""
    size = found["size"]
    hops = {
        (move["to"] - move["from"]) % size for step in found["rounds"] for move in step["moves"]
    }
    if size > 2 and hops and hops <= {1, size - 1}:
        return "ring"
    return "ring" if size > 2 and found["op"] in ("all_to_all", "barrier") else "line"


def _host_columns(hosts):
    """As many columns as the largest host has ranks, if each host's ranks follow each other."""
    return max(map(hosts.count, hosts)) if hosts else None
