"""Traces of rehearsed calls: the rounds of the algorithm that was priced, at predicted times.

The values came from the definition, so no round was run; what it would have sent is what the
algorithm's generator says. A call's time is given to its rounds in equal parts.
"""

from teachdist.collectives import Reduce, Send, get
from teachdist.collectives.model.cost import bytes_per_chunk
from teachdist.tracing.record import TracedCall, TracedRound


def keep(group, number, arrivals, name, began, until):
    """Hand the call to the traces that its ranks have open."""
    for rank, arrival in enumerate(arrivals):
        if arrival.tracers:
            call = _traced(group, number, rank, arrival, name, began, until)
            for trace in arrival.tracers:
                trace.calls.append(call)


def _traced(group, number, rank, arrival, name, began, until):
    call, made = arrival.call, get(arrival.call.op, name)
    size = bytes_per_chunk(call.op, call.nbytes, group.size, made.chunks(group.size))
    steps = list(made.steps(rank, group.size, call.root, group.hosts))
    pace = (until - began) / max(len(steps), 1)
    rounds = [
        _round(place, actions, size, began + place * pace, pace)
        for place, actions in enumerate(steps)
    ]
    return TracedCall(
        call.op, arrival.entry.call, name, group.key[0], number, rank, group.size, call.nbytes,
        began, until, rounds, call.root, group.hosts, group.job.machine.topology,
    )  # fmt: skip


def _round(number, actions, size, began, pace):
    sends, takes, reduced = {}, {}, []
    for action in actions:
        (sends if type(action) is Send else takes).setdefault(action[0], []).append(action.chunk)
        if type(action) is Reduce:
            reduced.append(action.chunk)
    sized = [
        {peer: (tuple(sorted(chunks)), int(len(chunks) * size)) for peer, chunks in some.items()}
        for some in (sends, takes)
    ]
    return TracedRound(number, *sized, tuple(sorted(set(reduced))), began, began + pace)
