"""The summary of a rehearsal: how long it would take, and where the time goes.

    64 ranks, 8 hosts x 8, infiniband: 12.4 ms predicted (measured clock)
        6.1 ms a step, from all_reduce(...) at train.py:31 to the next
        computing 71 %, exposed communication 21 %, waiting 8 % (rank 3: 80 % of it), sleeping 0 %
        sent: 3.1 MiB inside hosts, 12.4 MiB between hosts

*Exposed* is communication that a rank stood still for, with all others there; *waiting* is standing
still for a rank that came later, and names it. Shares are of all ranks' time together. Bytes are
those that the algorithms send, priced and counted from the same rounds.
"""

from collections import Counter

from teachdist.words import in_bytes, in_seconds, ranks_words

_CLOCKS = {"Clock": "measured", "Recorded": "recorded", "Modelled": "modelled"}


def summary(job):
    """The lines of the summary, as one text."""
    clocks = [rank.clock for rank in job.ranks]
    seconds = max(clock.time for clock in clocks)
    kind = _CLOCKS[type(clocks[0]).__name__]
    where = job.machine.topology.name
    lines = [f"{len(clocks)} ranks, {where}: {in_seconds(seconds)} predicted ({kind} clock)"]
    step = a_step(job)
    if step is not None:
        lines.append(f"{in_seconds(step[0])} a step, from {step[1]} to the next")
    lines.append(_shares(job, clocks))
    inside, between = job.traffic["inside"], job.traffic["between"]
    if inside or between:
        lines.append(f"sent: {in_bytes(inside)} inside hosts, {in_bytes(between)} between hosts")
    if job.memory:
        least, most = min(job.memory.values()), max(job.memory.values())
        fullest = [rank for rank, nbytes in job.memory.items() if nbytes == most]
        lines.append(
            f"memory of tensors at their peak: {in_bytes(least)} to {in_bytes(most)} a rank, "
            f"most on {ranks_words(fullest)}"
        )
    return "\n    ".join(lines)


def a_step(job):
    """(seconds, call) of what comes again and again: the call made least often, but repeatedly.

    From its second time to its last, as the first step of a program does more than the others.
    None if nothing comes three times.
    """
    times = {}
    for call, when in job.ranks[0].clock.calls:
        times.setdefault(call, []).append(when)
    repeated = [(len(whens), call) for call, whens in times.items() if len(whens) >= 3]
    if not repeated:
        return None
    count, call = min(repeated, key=lambda found: found[0])
    whens = times[call]
    return (whens[-1] - whens[1]) / (count - 2), call


def _shares(job, clocks):
    total = sum(clock.time for clock in clocks) or 1.0
    spent = {
        kind: sum(c.spent[kind] for c in clocks) / total
        for kind in ("compute", "transfer", "wait", "sleep")
    }
    blame = Counter()
    for clock in clocks:
        blame.update(clock.blame)
    words = f"computing {spent['compute']:.0%}, exposed communication {spent['transfer']:.0%}"
    words += f", waiting {spent['wait']:.0%}"
    if blame and spent["wait"] >= 0.005:
        (rank, most), *_ = blame.most_common(1)
        words += f" (for rank {rank}: {most / blame.total():.0%} of it)"
    if spent["sleep"] >= 0.005:
        words += f", sleeping {spent['sleep']:.0%}"
    return words
