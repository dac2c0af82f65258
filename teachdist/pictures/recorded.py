"""Recorded calls as scenes: what `teachdist.trace()` wrote on each rank becomes one picture.

The idea: a trace holds one rank's side. Sides of the same call, recognised by group and sequence
number, are put together: a send on one rank and the take on the other are one message. What no
traced rank has seen is filled in from the algorithm, and the title says so.
"""

from __future__ import annotations

from teachdist.collectives import Recv, Reduce, catalog, get
from teachdist.pictures.scene import frame, move, placed, scene


def together(traces) -> list[dict]:
    """Traces of some ranks -> [{rank: that rank's call}], in the order of the calls.

    `traces`: one trace, one call, or a list of either, one per rank.
    """
    calls = [call for trace in _listed(traces) for call in _calls(trace)]
    found: dict[tuple, dict] = {}
    for call in calls:
        sides = found.setdefault((call.group, call.sequence), {})
        sides.setdefault(call.rank, call)
    return list(found.values())


def recorded_scene(sides: dict, layout=None, columns=None, times=False) -> dict:
    """The scene of one call; `sides` is {rank: its record}. With `times`, how long rounds took."""
    call = next(iter(sides.values()))
    size, root = call.size, call.root
    title = f"{call.words} by {call.algorithm}, {size} ranks, as recorded"
    rounds = _moves(sides)
    try:
        chunks = get(call.op, call.algorithm).chunks(size)
    except ValueError:
        chunks = 1 + max((c for r in rounds for m in r["moves"] for c in m["chunks"]), default=0)
    if not rounds and call.algorithm not in catalog()[call.op]:
        title += "; its rounds are not seen"
    elif len(sides) < size:
        title += f" on {_ranks(sorted(sides))}"
        if whole := _planned(call, rounds):
            title += "; the rest as the algorithm has it"
            rounds = [_merged(a, b) for a, b in zip(whole, rounds, strict=True)]
    found = frame(call.op, size, chunks, root=root, title=title)
    if times:
        for number, step in enumerate(rounds):
            step["note"] = _took(sides, number)
    for number, step in enumerate(rounds):
        step.update(_held(sides, number))
    found["rounds"] = rounds
    return placed(found, layout, columns)


def _moves(sides):
    """The rounds with all messages that a traced rank has sent or taken."""
    count = max(len(call.rounds) for call in sides.values())
    rounds = [{} for _ in range(count)]
    for rank, call in sides.items():
        for step in call.rounds:
            into = rounds[step.number]
            for peer, (chunks, nbytes) in step.sends.items():
                into.setdefault((rank, peer), {}).update(chunks=chunks, bytes=nbytes)
            for peer, (chunks, nbytes) in step.takes.items():
                message = into.setdefault((peer, rank), {})
                message.update(chunks=chunks, bytes=nbytes, reduced=step.reduced)
    return [
        {"moves": [part for pair in sorted(into) for part in _split(*pair, **into[pair])]}
        for into in rounds
    ]


def _split(source, to, chunks, bytes, reduced=()):  # noqa: A002 - the scene's own word
    """A message as one or two moves: what is added and what replaces."""
    for how, part in (
        (Reduce, [c for c in chunks if c in reduced]),
        (Recv, [c for c in chunks if c not in reduced]),
    ):
        if part:
            yield {**move(source, to, part, how), "bytes": round(bytes * len(part) / len(chunks))}


def _planned(call, seen):
    """The rounds of the algorithm that ran; None if its name means something else by now."""
    try:
        whole = scene(call.algorithm, call.op, call.size, root=call.root, hosts=call.hosts)
    except ValueError:
        return None
    rounds = whole["rounds"]
    sent = [{(m["from"], m["to"]): set(m["chunks"]) for m in r["moves"]} for r in rounds]
    if whole["fault"] or len(rounds) != len(seen):
        return None
    for plan, now in zip(sent, seen, strict=True):
        for m in now["moves"]:
            if not set(m["chunks"]) <= plan.get((m["from"], m["to"]), set()):
                return None
    return rounds


def _merged(planned, seen):
    """The algorithm's round with the sizes of the messages that were seen."""
    sizes = {(m["from"], m["to"]): m["bytes"] for m in seen["moves"]}
    moves = [
        {**m, "bytes": sizes[m["from"], m["to"]]} if (m["from"], m["to"]) in sizes else m
        for m in planned["moves"]
    ]
    return {"moves": moves}


def _held(sides, number):
    """What the chunks held after the round, where the values were recorded."""
    steps = {rank: call.rounds[number] for rank, call in sorted(sides.items())}
    held = {str(rank): one.holdings() for rank, one in steps.items() if one.values}
    return {"values": held} if held else {}


def _took(sides, number):
    times = [c.rounds[number].seconds for c in sides.values()]
    return f"{min(times) * 1e6:.0f} to {max(times) * 1e6:.0f} µs"


def _listed(traces):
    if isinstance(traces, dict):
        return list(traces.values())
    return list(traces) if isinstance(traces, (list, tuple)) else [traces]


def _calls(trace):
    return trace.calls if hasattr(trace, "calls") else [trace]


def _ranks(ranks):
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
