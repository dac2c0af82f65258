"""What a job died of, from the dumps of its ranks: the sentence that a living job would have got.

In each group the collectives are numbered, and all ranks must make the same ones. So for each
group: the first number that some rank has not completed; who has come to it, with what; who has
not, and where that one is instead: in a call of another group, in a message, or nowhere, after its
last call. Groups in which few ranks wait come first, as a cause has fewer than its effects.
"""

from collections import defaultdict

from teachdist.words import ranks_words


def explain(dumps):
    """Sentences on {rank: Dump}, a line each; one that says so if nothing hangs."""
    stuck = _stuck(dumps)
    lines = [_group(dumps, group, stuck) for group in _groups(dumps)]
    lines = [line for line in lines if line]
    messages = _messages(dumps, stuck)
    missing = sorted(_expected(dumps) - set(dumps))
    if missing:
        lines.append(f"No dump of {ranks_words(missing)}: they may have ended, or could not write.")
    if not lines and not messages:
        return "Nothing hangs: every call that was recorded is over."
    return "\n".join([*lines, *messages])


def _expected(dumps):
    return {rank for dump in dumps.values() for ranks in dump.groups.values() for rank in ranks}


def _stuck(dumps):
    """{rank: the first call that it has not completed}."""
    found = {}
    for rank, dump in dumps.items():
        call = next((call for call in dump.calls if not call.over), None)
        if call is not None:
            found[rank] = call
    return found


def _groups(dumps):
    """The names of groups in which a rank waits, by how many do: causes have fewer."""
    waiting = defaultdict(int)
    for dump in dumps.values():
        for group in {call.group for call in dump.calls if not call.over and not call.peers}:
            waiting[group] += 1
    return sorted(waiting, key=lambda group: waiting[group])


def _members(dumps, group):
    """The ranks of a group: as told, else all for the job's own, else those that used it."""
    told = {rank for dump in dumps.values() for rank in dump.groups.get(group, ())}
    if told:
        return told
    if any(c.title == "default_pg" for d in dumps.values() for c in d.calls if c.group == group):
        return _expected(dumps) | set(dumps)
    return {r for r, dump in dumps.items() if any(c.group == group for c in dump.calls)}


def _title(dumps, group):
    for dump in dumps.values():
        for call in dump.calls:
            if call.group == group and call.title not in ("", "undefined", "default_pg"):
                return call.title
    return group


def _group(dumps, group, stuck):
    """The sentence on one group; "" if all of its ranks are in the same call, which may go on."""
    calls = {
        rank: {call.number: call for call in dump.calls if call.group == group and not call.peers}
        for rank, dump in dumps.items()
    }
    open_ = {n for mine in calls.values() for n, call in mine.items() if not call.over}
    if not open_:
        return ""
    number, members = min(open_), _members(dumps, group)
    there = {rank: calls[rank][number] for rank in calls if number in calls[rank]}
    title = f'group "{_title(dumps, group)}", call {number}'
    kinds = defaultdict(list)
    for rank, call in there.items():
        kinds[call.op, call.dtype, call.sizes if call.op not in _UNEVEN else ()].append(rank)
    if len(kinds) > 1:
        told = sorted(kinds.values(), key=lambda ranks: (len(ranks), -ranks[0]))
        said = "; ".join(
            f"{ranks_words(ranks)} {_are(ranks)} in {there[ranks[0]]}" for ranks in told
        )
        return f"{title}: {said}. Every rank of the group must make the same calls."
    late = sorted(members & set(dumps) - set(there))
    gone = sorted(members - set(dumps))
    if not late and not gone:
        said = f"{ranks_words(sorted(there))} {_are(there)} in {next(iter(there.values()))}"
        known = any(group in dump.groups for dump in dumps.values()) or len(members) == len(dumps)
        whole = "all of the group" if known else "who else is in the group the dumps do not tell"
        return f"{title}: {said}, and it did not end; {whole}."
    here = sorted(there)
    absent = [f"rank {rank} {_where(rank, group, calls, stuck, dumps)}" for rank in late[:8]]
    absent += [f"{len(late) - 8} more"] if len(late) > 8 else []
    absent += [f"{ranks_words(gone)} left no dump"] if gone else []
    return (
        f"{title}: {ranks_words(here)} {_wait(here)} in {there[here[0]]}. "
        f"Not there: {'; '.join(absent)}."
    )


_UNEVEN = {"all_gather", "all_to_all", "alltoall", "gather", "scatter", "reduce_scatter"}


def _where(rank, group, calls, stuck, dumps):
    """Where a rank is that did not come."""
    if rank in stuck and (stuck[rank].group != group or stuck[rank].peers):
        call = stuck[rank]
        kind = "message" if call.peers else "call"
        return f'is in {kind} {call.number} of group "{_title(dumps, call.group)}", {call}'
    last = max(calls[rank], default=None)
    if last is None:
        return "has made no call of this group"
    return f"made no call of this group after call {last}, {calls[rank][last]}"


def _messages(dumps, stuck):
    """Ranks that wait in a send or a receive, and for whom."""
    lines = []
    for rank in sorted(stuck):
        call = stuck[rank]
        if call.peers:
            ranks = sorted(_members(dumps, call.group))
            place = call.peers[1] if call.op == "send" else call.peers[0]
            peer = ranks[place] if place < len(ranks) else place
            other = stuck.get(peer)
            where = f"is in {other}" if other is not None else "is in no call"
            lines.append(f"rank {rank} waits in {call}: rank {peer} {where}.")
    return lines


def _are(ranks):
    return "is" if len(ranks) == 1 else "are"


def _wait(ranks):
    return "waits" if len(ranks) == 1 else "wait"
