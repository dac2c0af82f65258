"""Recursive doubling: exchange with a partner at distance 1, then 2, then 4, ...

The idea: in round k rank r and rank r ^ 2^k swap all that they have. What each has doubles from
round to round; after lg p rounds everybody has everything. Both partners do the same at the same
time, so no rank waits for a root.

    8 ranks, partners

    round 0   0-1  2-3  4-5  6-7
    round 1   0-2  1-3  4-6  5-7
    round 2   0-4  1-5  2-6  3-7

Cost: all-reduce lg p (a + nb + ng), all-gather lg p a + n(p-1)/p b, barrier lg p a. The all-reduce
sends everything in every round: the fewest rounds, but lg p times the bytes; for small data.

When p is no power of two, guests add a round before and one after (`powers.py`).

Source: Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH"
(2005).
"""

from teachdist.collectives.catalog import algorithm
from teachdist.collectives.powers import (
    distances,
    has_guest,
    is_guest,
    largest_power,
    number_of,
    power_of_two,
    rank_of,
    xor_symmetry,
)
from teachdist.collectives.schedule import Recv, Reduce, Send


@algorithm(
    "all_reduce",
    "doubling",
    formula="lg(P)*(a + n*b + n*g) + fold*(2*a + 2*n*b + n*g)",
    symmetry=xor_symmetry,
)
def doubling(rank, size):
    """Swap the sum of my group with the other half, and add."""
    steps = distances(largest_power(size))
    if is_guest(rank, size):
        yield Send(rank - 1, 0)
        for _ in steps:
            yield ()
        yield Recv(rank - 1, 0)
        return

    if not power_of_two(size):
        yield Reduce(rank + 1, 0) if has_guest(rank, size) else ()
    for distance in steps:
        peer = rank_of(number_of(rank, size) ^ distance, size)
        yield Send(peer, 0), Reduce(peer, 0)
    if has_guest(rank, size):
        yield Send(rank + 1, 0)


@algorithm(
    "all_gather",
    "doubling",
    when=power_of_two,
    formula="lg(p)*a + n*(p-1)/p*b",
    symmetry=xor_symmetry,
)
def doubling_all_gather(rank, size):
    """Swap all blocks of my group of `distance` ranks for those of the partner's group."""
    for distance in distances(size):
        peer = rank ^ distance
        yield (
            *(Send(peer, block) for block in group(rank, distance)),
            *(Recv(peer, block) for block in group(peer, distance)),
        )


@algorithm("barrier", "doubling", formula="(lg(P) + 2*fold)*a", symmetry=xor_symmetry)
def doubling_barrier(rank, size):
    """Swap "who has come"."""
    yield from doubling(rank, size)


def group(member, length):
    """The numbers of the aligned group of `length` that `member` is in."""
    first = member - member % length
    return range(first, first + length)
