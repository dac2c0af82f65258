"""Traces as a file that Perfetto (https://ui.perfetto.dev) and chrome://tracing open.

One track per rank. On it each call is a block, in it each round (of each segment) a smaller one,
and an arrow goes from the round that sends to the round that takes.

    rank 0   [ all_reduce                         ]
             [ round 0  ][ round 1  ][ round 2    ]
                   :...........:
    rank 1      [ all_reduce   :                     ]
                [ round 0  ][ round 1  ][ round 2    ]

All times come from the ranks' own clocks, counted from the first event: tracks of ranks of one host
fit together, those of other hosts may be shifted.

Source of the format: "Trace Event Format", Chromium project; its events "X" (a block from ts to
ts + dur, in microseconds), "s" and "f" (an arrow's start and finish), "M" (names).
"""

import itertools
import json
import os
from pathlib import Path

from teachdist.pictures.recorded import together
from teachdist.tracing.gathered import by_rank


def save_chrome(traces_by_rank, path):
    """Write traces, {rank: trace} or a list by rank, to a JSON file. Returns the path."""
    path = Path(path)
    text = json.dumps({"traceEvents": events(by_rank(traces_by_rank)), "displayTimeUnit": "ms"})
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)
    return path


def events(traces: dict) -> list[dict]:
    """The events of {rank: trace}, as the format has them."""
    tracks = {id(call): rank for rank, trace in traces.items() for call in trace.calls}
    calls = [call for trace in traces.values() for call in trace.calls]
    first = min((call.began for call in calls), default=0.0)
    found = [{"ph": "M", "pid": 0, "name": "process_name", "args": {"name": "teachdist"}}]
    for rank in traces:
        about = {"ph": "M", "pid": 0, "tid": rank}
        found.append({**about, "name": "thread_name", "args": {"name": f"rank {rank}"}})
        found.append({**about, "name": "thread_sort_index", "args": {"sort_index": rank}})
    for call in calls:
        found += _blocks(call, tracks[id(call)], first)
    numbers = itertools.count()
    for sides in together(traces):
        found += _arrows(sides, tracks, first, numbers)
    return found


def _blocks(call, track, first):
    """The call, and in it its rounds."""
    facts = {
        "call": call.words,
        "algorithm": call.algorithm,
        "bytes": call.nbytes,
        "group": call.group,
        "sequence": call.sequence,
    }
    yield _block(call.op, "call", track, (call.began, call.ended), first, facts)
    for step in call.rounds:
        told = {"sends": _by_peer(step.sends), "takes": _by_peer(step.takes)}
        for segment, span in enumerate(step.spans):
            where = {**told, "segment": segment} if len(step.spans) > 1 else told
            yield _block(f"round {step.number}", "round", track, span, first, where)


def _block(name, kind, track, span, first, args):
    began, ended = span
    return {
        "ph": "X",
        "pid": 0,
        "tid": track,
        "name": name,
        "cat": kind,
        "ts": _micro(began - first),
        "dur": _micro(ended - began),
        "args": args,
    }


def _arrows(sides, tracks, first, numbers):
    """For each message an arrow: from the begin of the sender's round to the end of the taker's."""
    for rank, call in sides.items():
        for step in call.rounds:
            for peer in step.sends:
                taken = _round(sides.get(peer), step.number)
                if taken is None or rank not in taken.takes:
                    continue
                about = {
                    "pid": 0,
                    "name": "message",
                    "cat": "message",
                    "id": next(numbers),
                }
                # Just inside the blocks, which is how the format ties an arrow to them.
                leaves = step.began + 0.01 * (step.spans[0][1] - step.began)
                began, ended = taken.spans[-1]
                comes = ended - 0.01 * (ended - began)
                start = {"ph": "s", "tid": tracks[id(call)], "ts": _micro(leaves - first)}
                finish = {"ph": "f", "bp": "e", "tid": tracks[id(sides[peer])]}
                yield {**about, **start}
                yield {**about, **finish, "ts": _micro(comes - first)}


def _round(call, number):
    """The round of this number of a call, if it was recorded."""
    return next((step for step in call.rounds if step.number == number), None) if call else None


def _by_peer(messages):
    """{"rank 1": "chunks 0, 2 (64 bytes)"}."""
    return {
        f"rank {peer}": f"chunk{'s' if len(chunks) > 1 else ''} "
        f"{', '.join(map(str, chunks))} ({nbytes} bytes)"
        for peer, (chunks, nbytes) in messages.items()
    }


def _micro(seconds):
    return round(seconds * 1e6, 3)
