"""A collective by its algorithm: the rounds of all ranks, on their tensors, in one place.

Sums come out in the algorithm's own order, as on real ranks; and a wrong algorithm gives wrong
values. So this is how a call is carried out whose algorithm the program has chosen (by
`teachdist.use`, Options, the environment). Among many ranks it would take too long: there, and
where nobody has chosen, the definition computes the values (`values.py`).

The rules are those of `collectives`: sends read what was there before the round; what comes from
several ranks into one chunk is combined in order of rank, the receiver's own in its place.
"""

from teachdist.collectives import Reduce, Send, get

MOST = 64  # ranks


def carry_out_rounds(calls, name, hosts):
    """Run algorithm `name` on the calls of all ranks."""
    first, size = calls[0], len(calls)
    made = get(first.op, name)
    bound = [call.bind(made.chunks(size)) for call in calls]
    held = [dict(sources) for sources, _ in bound]
    steps = [made.steps(rank, size, first.root, hosts) for rank in range(size)]
    while any(rounds := [next(mine, None) for mine in steps]) or None not in rounds:
        arriving = [{} for _ in range(size)]
        for rank, actions in enumerate(rounds):
            for action in actions or ():
                if type(action) is not Send:
                    arriving[rank].setdefault(action.chunk, []).append(action)
        new = [
            {chunk: _after(held, rank, chunk, some, first.reducer) for chunk, some in mine.items()}
            for rank, mine in enumerate(arriving)
        ]
        for rank, chunks in enumerate(new):
            held[rank].update(chunks)
    for rank, (_, targets) in enumerate(bound):
        for chunk, target in targets.items():
            if chunk in held[rank] and held[rank][chunk].data_ptr() != target.data_ptr():
                target.copy_(held[rank][chunk])


def _after(held, rank, chunk, actions, reducer):
    """What `rank` has as `chunk` after a round in which `actions` bring something into it."""
    givers = sorted(action.source for action in actions)
    if type(actions[0]) is Reduce and chunk in held[rank]:
        givers = sorted([*givers, rank])
    total = held[givers[0]][chunk].clone()
    for giver in givers[1:]:
        reducer.combine(total, held[giver][chunk], out=total)
    return total
