"""An algorithm as a film: what every rank holds before and after each round, and who sends what.

The idea: a picture, an animation and a text all tell the same rounds. `frames` runs the algorithm
symbolically (`checker/symbolic.py`) and writes each round down as plain lists and dicts, ready for
JSON. A wrong algorithm gives the frames up to the round in which it goes wrong, the last of them
with the sentence that says why: a counter-example to look at.

    {"round": 0,
     "messages": [{"source": 0, "to": 1, "chunks": [1], "reduce": true}, ...],
     "before": [{"0": [0], "1": [0]}, ...],      by rank: chunk -> the ranks that are in it
     "after":  [{"0": [0, 1], "1": [0]}, ...],   null in a round that goes wrong
     "fault": null}                              or the sentence
"""

from __future__ import annotations

from teachdist.collectives.checker.faults import Fault
from teachdist.collectives.checker.prove import resolve
from teachdist.collectives.checker.symbolic import Execution
from teachdist.collectives.schedule import Reduce, Send, members


def frames(
    algorithm,
    size: int,
    op: str | None = None,
    *,
    root: int = 0,
    hosts: tuple[int, ...] | None = None,
    chunks=None,
) -> list[dict]:
    """One JSON-able dict per round, as the head of this file shows.

    Chunk numbers are keys and so strings, as in JSON. The film of a wrong algorithm ends with a
    frame whose "fault" is a sentence; if the fault shows only after the last round, "messages" of
    that frame is empty.
    """
    run = Execution(resolve(algorithm, op, chunks), size, root, hosts)
    film: list[dict] = []
    held = _readable(run.held)
    while True:
        try:
            actions = run.step()
            if actions is None:
                run.check_end()
                return film
        except Fault as fault:
            happening = _messages(run.actions) if fault.round is not None else []
            film.append(_frame(run.rounds, happening, held, None, fault.sentence))
            return film
        after = _readable(run.held)
        film.append(_frame(run.rounds - 1, _messages(actions), held, after, None))
        held = after


def describe_rounds(
    algorithm,
    size: int,
    op: str | None = None,
    *,
    root: int = 0,
    hosts: tuple[int, ...] | None = None,
    chunks=None,
) -> list[str]:
    """One line of text per round, such as "round 0: 0 -> 1 adds chunk 3; 1 -> 2 adds chunk 0"."""
    lines = []
    film = frames(algorithm, size, op, root=root, hosts=hosts, chunks=chunks)
    for frame in film:
        sent = "; ".join(
            f"{message['source']} -> {message['to']} {'adds' if message['reduce'] else 'gives'} "
            f"{_chunks_in_words(message['chunks'])}"
            for message in frame["messages"]
        )
        if frame["fault"]:
            lines.append(f"wrong: {frame['fault']}" + (f" [{sent}]" if sent else ""))
        else:
            lines.append(f"round {frame['round']}: {sent or 'nobody sends'}")
    return lines


def short_list(numbers) -> str:
    """Numbers with runs drawn together: "0-3,6"."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ",".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts)


def _chunks_in_words(chunks):
    return f"chunk{'s' if len(chunks) > 1 else ''} {short_list(chunks)}"


def _frame(number, messages, before, after, fault):
    return {
        "round": number,
        "messages": messages,
        "before": before,
        "after": after,
        "fault": fault,
    }


def _readable(held):
    return [
        {str(chunk): members(who) for chunk, (who, _) in sorted(chunks.items())} for chunks in held
    ]


def _messages(actions):
    """All chunks that one rank sends another in a round and that are received the same way."""
    reduced = {
        (action.source, rank, action.chunk)
        for rank, mine in enumerate(actions)
        for action in mine
        if type(action) is Reduce
    }
    grouped: dict[tuple[int, int, bool], list[int]] = {}
    for rank, mine in enumerate(actions):
        for action in mine:
            if type(action) is Send:
                adds = (rank, action.to, action.chunk) in reduced
                grouped.setdefault((rank, action.to, adds), []).append(action.chunk)
    return [
        {"source": source, "to": to, "chunks": sorted(chunks), "reduce": adds}
        for (source, to, adds), chunks in grouped.items()
    ]
