"""What a collective means, carried out: the values that its definition asks for.

`collectives/schedule.py` says for each collective which chunks a rank holds at the start and what
it must hold at the end, as sets of contributors. That is all that is needed to compute the result,
without any algorithm: a chunk that one rank contributed to is copied, one with several contributors
is combined in order of rank. So sums are not in the order in which a ring would add them up; for
that see `rounds.py`.

What many ranks must hold is computed once, however many ranks there are.
"""

import torch

from teachdist.collectives.schedule import DEFINITIONS, members
from teachdist.rehearse.errors import CannotRehearse
from teachdist.rehearse.rounds import MOST, carry_out_rounds


def carry_out(calls, ranks, how="", hosts=()):
    """Compute a collective. calls: the `Call` of each rank, in order of rank in the group.

    ranks: their numbers in the job, for messages. how: the algorithm that the program has chosen.
    """
    with torch.no_grad():
        if calls[0].op == "barrier":
            pass
        elif how and len(calls) <= MOST:
            carry_out_rounds(calls, how, hosts)
        else:
            whole = getattr(calls[0], "whole", None)
            if whole is None:
                _by_definition(calls, ranks)
            else:
                whole(calls)
        for call in calls:
            if call.after or call.write_back or call.then:
                call.complete()


def _by_definition(calls, ranks):
    first = calls[0]
    definition, size = DEFINITIONS[first.op], len(calls)
    chunks = definition.chunk_count(size)
    bound = [call.bind(1) for call in calls]
    sources = [held for held, _ in bound]
    needed, places = {}, {}
    for rank, (_, targets) in enumerate(bound):
        wanted = definition.end(rank, size, first.root, chunks)
        for chunk, target in targets.items():
            if target.numel():
                other = places.setdefault(target.data_ptr(), rank)
                if other != rank:
                    raise _shared(first, ranks[other], ranks[rank])
            needed.setdefault((chunk, wanted[chunk]), []).append(target)
    known = {}
    for chunk, contributions in needed:
        givers = members(contributions)
        known[chunk, contributions] = _value(first, chunk, givers, sources)
    for key, targets in needed.items():
        for target in targets:
            if target.data_ptr() != known[key].data_ptr():
                target.copy_(known[key])


def _value(call, chunk, givers, sources):
    value = sources[givers[0]][chunk]
    if len(givers) > 1:
        return combined(call.reducer, [sources[giver][chunk] for giver in givers])
    return value if call.op != "all_to_all" else value.clone()


def combined(reducer, contributions):
    """All contributions combined, in order; a new tensor. One is looked at after the other."""
    rest = iter(contributions)
    total = next(rest).clone()
    for contribution in rest:
        reducer.combine(total, contribution, out=total)
    return total


def gather_whole(calls):
    """all_gather into one contiguous tensor: `call.parts` is (output, input), both flat."""
    everything = torch.cat([call.parts[1] for call in calls])
    for call in calls:
        call.parts[0].copy_(everything)


def gather_lists(calls):
    """all_gather into lists of tensors of one shape: `call.parts` is (outputs, input)."""
    inputs = [call.parts[1] for call in calls]
    for call in calls:
        torch._foreach_copy_([t.detach() for t in call.parts[0]], inputs)


def scatter_whole(calls):
    """reduce_scatter of one contiguous tensor: `call.parts` is (output, input), both flat."""
    size, reducer = len(calls), calls[0].reducer
    total = combined(reducer, (call.reducer.before(call.parts[1], size) for call in calls))
    for call, part in zip(calls, total.view(size, -1), strict=True):
        call.parts[0].copy_(part)


def _shared(call, one, other):
    return CannotRehearse(
        f"{call.words}: ranks {one} and {other} give one and the same tensor to write to. Ranks "
        "are threads of one process here, so what a function finds outside itself is shared; on "
        "real ranks each has its own. Make the tensor inside the function."
    )
