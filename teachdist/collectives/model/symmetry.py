"""Pricing thousands of ranks from the rounds of one.

The idea: in many algorithms all ranks do the same, up to a renaming of ranks: rank r does what rank
0 does with every rank number moved on by r ("shift": ring, direct, Bruck, ...) or xor-ed with r
("xor": recursive doubling and halving). Then one generator instead of p tells the messages of all
ranks; and if all links are alike all clocks are equal as well, so that one clock will do.

With hosts the clocks differ. But where the same round comes again and again, as in a ring, they
soon advance all by the same step in every round, and the remaining rounds need only be multiplied.

An algorithm says `symmetry="shift"` or `"xor"`, or gives a function of the number of ranks; the
tests compare that with the rounds of all ranks.
"""

from __future__ import annotations

from collections import Counter
from itertools import groupby

from teachdist.collectives.algorithm import Algorithm
from teachdist.collectives.model.clocks import START, Clock, RoundOfRank, count, summary
from teachdist.collectives.model.shared_memory import clocks, written_chunks


def kind_of(algorithm: Algorithm, size: int) -> str | None:
    """Tell how all ranks follow from rank 0: "shift", "xor", or None for not at all."""
    kind = algorithm.symmetry
    return kind(size) if callable(kind) else kind


def renamed(pattern: RoundOfRank, kind: str, rank: int, size: int) -> RoundOfRank:
    """What `rank` does when `pattern` is what rank 0 does."""

    def renumber(by_peer):
        if kind == "shift":
            return tuple(((peer + rank) % size, what) for peer, what in by_peer)
        return tuple((peer ^ rank, what) for peer, what in by_peer)

    return RoundOfRank(*map(renumber, pattern))


def runs(algorithm: Algorithm, size: int) -> list[tuple[RoundOfRank, int]]:
    """The rounds of rank 0 as (pattern, how often in a row)."""
    patterns = (summary(actions) for actions in algorithm.steps(0, size))
    return [(pattern, sum(1 for _ in same)) for pattern, same in groupby(patterns)]


def one_clock(algorithm: Algorithm, size, price, gamma, chunk_bytes) -> Clock:
    """The clock of every rank when all links cost `price`."""
    latency = transfer = combining = 0.0
    for pattern, times in runs(algorithm, size):
        messages = len(pattern.sends)
        chunks = sum(len(sent) for _, sent in pattern.sends)
        if price.shared:
            messages = min(messages, 1)
            chunks = written_chunks(pattern.sends) + count(pattern.copies)
        latency += times * price.alpha * messages
        transfer += times * price.beta * chunk_bytes * chunks
        combining += times * gamma * chunk_bytes * count(pattern.reduced)
    return Clock(latency + transfer + combining, latency, transfer, combining)


def all_clocks(algorithm: Algorithm, size, kind, topology, hosts, chunk_bytes) -> Clock:
    """The latest clock when links differ; equal rounds are multiplied once the pace is steady."""
    running = clocks(size, topology, hosts, chunk_bytes)
    for pattern, times in runs(algorithm, size):
        rounds = [(rank, renamed(pattern, kind, rank, size)) for rank in range(size)]
        for done in range(1, times + 1):
            before = [*running.now, *running.port_in]
            running.step(rounds)
            pace = _common_pace(before, [*running.now, *running.port_in])
            if pace is not None:
                running.now = [_later(clock, pace, times - done) for clock in running.now]
                running.port_in = [_later(clock, pace, times - done) for clock in running.port_in]
                break
    return running.latest()


def work(algorithm: Algorithm, size: int, hosts: tuple[int, ...]) -> int:
    """About how many messages `all_clocks` has to follow before every pace is steady."""
    until_steady = 2 * max(Counter(hosts).values())
    return size * sum(
        min(times, until_steady) * len(pattern.sends) for pattern, times in runs(algorithm, size)
    )


def _common_pace(before, after):
    """By how much every clock has moved on, or None if they differ."""
    steps = [
        Clock(*(new - old for new, old in zip(late, early, strict=True)))
        for early, late in zip(before, after, strict=True)
        if early != START or late != START
    ]
    if not steps:
        return START
    first = steps[0]
    slack = 1e-9 * max(clock.seconds for clock in after)
    for step in steps:
        if any(abs(x - y) > slack for x, y in zip(first, step, strict=True)):
            return None
    return first


def _later(clock, pace, times):
    if clock == START:
        return clock
    return Clock(*(value + times * step for value, step in zip(clock, pace, strict=True)))
