"""From the places of all ranks to a sentence: who is to blame, and for what.

Pure: it looks at places (see `snapshot.py`) and asks nobody, so the same words come from a waiting
rank's log, from an exception, from the notebook and from `teachdist doctor`.

The rules, most certain first:

1. *Parted*: two ranks' calls of the same number are different calls. That is always an error,
   and the earliest such number is where the programs took different branches.
2. *Dead* or *gone*: a rank that others wait for has no process any more, or has left.
3. *A circle*: ranks wait for each other, so nothing will ever come.
4. *Missing*: some ranks are in a call that others have not reached. That may be an error, or
   one rank is merely slow; so it is said, and not judged.

And a clue for all of them: equal calls made at different lines. A program may be written so, but
when ranks have come to wait for each other, the first such call is where to look.
"""

from collections import Counter

from teachdist.diagnose.call_site import IDLE
from teachdist.diagnose.snapshot import ABSENT, CALL, CLOSED, DEAD, GONE, SILENT, USER
from teachdist.diagnose.splits import disagreement
from teachdist.words import ranks_words


def parted(calls):
    """The first call that is not the same call on all ranks: (number, {rank: entry}), or None.

    calls: {rank: {number: entry}}.
    """
    for number, entries in _by_number(calls):
        found = entries.values()
        if len({entry.fingerprint for entry in found}) > 1 or ways(found):
            return number, entries
    return None


def ways(entries):
    """Whether equal calls are made by different algorithms: their names, or nothing."""
    names = {entry.how for entry in entries if entry.how}
    return names if len(names) > 1 else set()


def drifted(calls):
    """The first call that ranks have made at different lines, as `parted`; or None."""
    for number, entries in _by_number(calls):
        if len({entry.site for entry in entries.values()}) > 1:
            return number, entries
    return None


def _by_number(calls):
    numbers = sorted({number for mine in calls.values() for number in mine})
    for number in numbers:
        yield number, {rank: mine[number] for rank, mine in calls.items() if number in mine}


def differing(entries):
    """Who made which call: "rank 1 is in broadcast(...) at a.py:3; ranks 0 and 2 are in ...".

    entries: {rank: entry or words}. The few come before the many: they are the likelier cause.
    """
    groups = {}
    for rank in sorted(entries):
        entry = entries[rank]
        groups.setdefault(entry if isinstance(entry, str) else entry.call, []).append(rank)
    ordered = sorted(groups.items(), key=lambda item: (len(item[1]), -item[1][0]))
    return "; ".join(f"{ranks_words(ranks)} {_is(ranks)} in {call}" for call, ranks in ordered)


def mismatch(group, number, entries, calls=None):
    """The sentence about ranks that are in different calls."""
    texts = [entry if isinstance(entry, str) else entry.call for entry in entries.values()]
    known = [entry for entry in entries.values() if not isinstance(entry, str)]
    whats = {rank: e if isinstance(e, str) else e.call for rank, e in entries.items()}
    if said := disagreement(whats):
        return f'group "{group}", call {number}: {differing(entries)}; {said}{clue(calls, number)}'
    by_algorithm = len({text.rpartition(" at ")[0] for text in texts}) == 1 and ways(known)
    if by_algorithm:
        entries = {rank: _with_algorithm(entry) for rank, entry in entries.items()}
    what = f'group "{group}", call {number}: {differing(entries)}. '
    if by_algorithm:
        what += (
            "All ranks of the group must choose the same algorithm, by teachdist.use, Options or "
            "the environment."
        )
    elif len({text.partition("(")[0] for text in texts}) == 1:
        what += "The same call must have the same arguments on every rank of the group."
    else:
        what += "Collectives match by order: every rank of the group must make the same calls."
    return what + clue(calls, number)


def _with_algorithm(entry):
    if isinstance(entry, str) or not entry.how:
        return entry
    return f"{entry.what} by {entry.how} at {entry.site}"


def clue(calls, before=None):
    """The first calls made at different lines, as a sentence with a space in front; or "".

    before: look only at calls with smaller numbers.
    """
    found = drifted(calls or {})
    if found is None or (before is not None and found[0] >= before):
        return ""
    number, entries = found
    made = {}
    for rank in sorted(entries):
        made.setdefault((entries[rank].what, entries[rank].site), []).append(rank)
    if len({what for what, _ in made}) == 1:
        where = ", ".join(f"{site} on {ranks_words(ranks)}" for (_, site), ranks in made.items())
        said = f"{next(iter(made))[0]} was called at {where}"
    else:
        said = ", ".join(
            f"{ranks_words(ranks)} called {what} at {site}" for (what, site), ranks in made.items()
        )
    return f" They may have parted at call {number}: {said}."


def circle(places):
    """Ranks that wait for each other: their numbers, each waiting for the next; or [].

    Only point-to-point calls and calls of different groups count: ranks in one and the same
    collective always wait for each other.
    """
    waits = {}
    for place in places:
        entry = place.entry
        if place.state == CALL and entry.p2p and len(place.position.awaits) == 1:
            ranks = place.position.about.get("ranks") or []
            awaited = place.position.awaits[0]
            waits[place.rank] = ranks[awaited] if awaited < len(ranks) else awaited
    for start in sorted(waits):
        path = [start]
        while (following := waits.get(path[-1])) is not None and following not in path:
            path.append(following)
        if following == start:
            return path
    return []


def each_other(ring):
    """What a circle is, as a sentence without its end: "ranks 0 and 1 wait for each other"."""
    if len(ring) == 1:
        return f"{ranks_words(ring)} waits for itself"
    return f"{ranks_words(ring)} wait for each other"


def crossing(places, waiting):
    """A sentence if ranks of `places` wait elsewhere for those that wait here; or "".

    waiting: the ranks that are in a call of this group.
    """
    for place in places:
        if place.elsewhere is not None and (both := set(place.elsewhere.awaits) & set(waiting)):
            return (
                f" {ranks_words({place.rank, *both})} wait for each other in two groups: all ranks "
                "must use groups in the same order."
            )
    return ""


def whereabouts(places):
    """Where each rank is: "rank 1 is in user code at data.py:57; rank 2 has ended"."""
    said = {}
    for place in places:
        said.setdefault(_where(place), []).append(place.rank)
    return "; ".join(
        f"{ranks_words(ranks)} {_agree(words, ranks)}" for words, ranks in said.items()
    )


def _where(place):
    """A place as the end of a sentence; its verb is the singular."""
    if place.elsewhere is not None:
        entry = place.elsewhere.entry
        number = "" if entry.p2p else f", call {entry.number}"
        return f'is in another group: "{place.elsewhere.group}"{number}, in {entry.call}'
    if place.state == DEAD:
        last = f"; last seen {place.position.words()}" if place.entry is not None else ""
        return f"is dead: the process has ended{last}"
    if place.state == GONE:
        last = f" after {_call(place.entry)}" if place.entry is not None else ""
        return f"has finished: it left the group{last}"
    if place.state == ABSENT:
        at = f"; it is in user code at {place.line}" if place.line else ""
        at = "; it is idle" if place.line == IDLE else at
        return f"has not joined the group{at}"
    if place.state == SILENT:
        return "is on another host and does not answer"
    if place.state == CLOSED:
        return "is gone: nobody answers at its address any more"
    if place.state == USER and place.line:
        after = f", after {_call(place.entry)}" if place.entry is not None else ""
        if place.line == IDLE or place.line.startswith("stopped"):
            return f"is {place.line}{after}"
        return f"is in user code at {place.line}{after or ', before any call of this group'}"
    return f"is {place.position.words()}"


def _call(entry):
    return f"{entry.call}" if entry.p2p else f"call {entry.number}, {entry.call}"


def verdict(group, places):
    """One or more sentences about a group as seen from outside.

    group: its name. places: of all its ranks.
    """
    head = f'group "{group}": '
    by_rank = {place.rank: place for place in places}
    calls = {place.rank: place.calls for place in places}
    inside = [place for place in places if place.state == CALL]
    if (found := parted(calls)) is not None:
        number, entries = found
        return mismatch(group, number, entries, calls) + _still(inside)
    if ring := circle(places):
        steps = [f"rank {rank} waits in {by_rank[rank].entry.call}" for rank in ring]
        return f"{head}{each_other(ring)}: {'; '.join(steps)}."
    if not inside:
        return head + _nobody_waits(places)
    number = max(place.position.sequence for place in inside)
    here = [p for p in inside if not p.entry.p2p and p.entry.number == number]
    late = [place for place in places if place not in here]
    if not here or (inside and all(place.entry.p2p for place in inside)):
        return f"{head}{whereabouts(places)}."
    waiting = f"{ranks_words([p.rank for p in here])} {_is(here)} in call {number}, "
    waiting += " and ".join(dict.fromkeys(place.entry.call for place in here))
    if not late:
        return f"{head}all ranks are in call {number}, {here[0].entry.call}: it is under way."
    crossed = crossing(late, [p.rank for p in here])
    return f"{head}{waiting}. Not there: {whereabouts(late)}.{crossed}{clue(calls)}"


def _nobody_waits(places):
    states = Counter(place.state for place in places)
    if states[GONE] == len(places):
        return "all ranks have left it."
    if states[USER] == len(places):
        return "no rank is in a call; all are in user code."
    return f"no rank waits; {whereabouts(places)}."


def _still(inside):
    if not inside:
        return ""
    return f" Blocked: {ranks_words([place.rank for place in inside])}."


def _is(ranks):
    return "is" if len(ranks) == 1 else "are"


def _agree(words, ranks):
    """The plural of a `_where`, for several ranks."""
    if len(ranks) == 1:
        return words
    words = words.replace(": it left the group", ": they left the group")
    first, _, rest = words.partition(" ")
    return f"{ {'is': 'are', 'has': 'have'}.get(first, first) } {rest}".strip()
