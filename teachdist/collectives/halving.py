"""Recursive halving, and Rabenseifner's all-reduce and reduce, which begin with it.

The idea: recursive doubling sends everything in every round. Instead let the partners share the
work: with a partner at distance p/2 give away one half of the data and add up the other half; then
half of that half with a partner at distance p/4; and so on. After lg p rounds everybody has added
up one p-th of the data: a reduce-scatter. Rabenseifner's all-reduce then collects the p parts by
recursive doubling, his reduce by a binomial tree.

    8 chunks, what rank 0 still adds up        what rank 5 still adds up

    start     0 1 2 3 4 5 6 7                  0 1 2 3 4 5 6 7
    round 0   0 1 2 3          (with 4)                4 5 6 7    (with 1)
    round 1   0 1              (with 2)                4 5        (with 7)
    round 2   0                (with 1)                  5        (with 4)

Cost: reduce-scatter lg p a + n(p-1)/p (b + g); all-reduce and reduce 2 lg p a + 2n(p-1)/p b +
n(p-1)/p g: as few bytes as a ring in far fewer rounds. When p is no power of two, guests
(`powers.py`) add up to 2(a + nb) + ng.

Source: Rabenseifner, "Optimization of collective reduction operations" (2004); Thakur,
Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH" (2005).
"""

from teachdist.collectives.catalog import algorithm
from teachdist.collectives.doubling import group
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


def halve(number, power, rank_at, chunks_at):
    """The rounds of recursive halving for one of `power` numbered ranks.

    `rank_at(number)` is the rank with a number, `chunks_at(number)` the chunks it ends with.
    """
    for distance in reversed(distances(power)):
        other = number ^ distance
        theirs = [chunk for one in group(other, distance) for chunk in chunks_at(one)]
        mine = [chunk for one in group(number, distance) for chunk in chunks_at(one)]
        peer = rank_at(other)
        yield (
            *(Send(peer, chunk) for chunk in theirs),
            *(Reduce(peer, chunk) for chunk in mine),
        )


@algorithm(
    "reduce_scatter",
    "halving",
    formula=(
        "<= lg(P)*a + n/p*sum(min(2*d, d + p - P) for d in powers(P))*(b + g)"
        " + fold*(2*a + n*b + n*g + n/p*b)"
    ),
    symmetry=xor_symmetry,
)
def halving(rank, size):
    """Give away the half that the partner keeps, add up the other half."""
    power = largest_power(size)

    def chunks_at(number):
        host = rank_of(number, size)
        return (host, host + 1) if has_guest(host, size) else (host,)

    if is_guest(rank, size):
        yield tuple(Send(rank - 1, chunk) for chunk in range(size))
        for _ in distances(power):
            yield ()
        yield Recv(rank - 1, rank)
        return

    if has_guest(rank, size):
        yield tuple(Reduce(rank + 1, chunk) for chunk in range(size))
    elif not power_of_two(size):
        yield ()
    yield from halve(number_of(rank, size), power, lambda one: rank_of(one, size), chunks_at)
    if has_guest(rank, size):
        yield Send(rank + 1, rank + 1)


@algorithm(
    "all_reduce",
    "rabenseifner",
    chunks=largest_power,
    formula="2*lg(P)*a + 2*n*(P-1)/P*b + n*(P-1)/P*g + fold*(2*a + 2*n*b + n*g)",
    symmetry=xor_symmetry,
)
def rabenseifner(rank, size):
    """Recursive halving, then recursive doubling with the parts."""
    power = largest_power(size)
    everything = range(power)
    if is_guest(rank, size):
        yield tuple(Send(rank - 1, chunk) for chunk in everything)
        for _ in range(2 * len(distances(power))):
            yield ()
        yield tuple(Recv(rank - 1, chunk) for chunk in everything)
        return

    if has_guest(rank, size):
        yield tuple(Reduce(rank + 1, chunk) for chunk in everything)
    elif not power_of_two(size):
        yield ()
    number = number_of(rank, size)
    yield from halve(number, power, lambda one: rank_of(one, size), lambda one: (one,))
    for distance in distances(power):
        other = number ^ distance
        peer = rank_of(other, size)
        yield (
            *(Send(peer, chunk) for chunk in group(number, distance)),
            *(Recv(peer, chunk) for chunk in group(other, distance)),
        )
    if has_guest(rank, size):
        yield tuple(Send(rank + 1, chunk) for chunk in everything)


@algorithm(
    "reduce",
    "rabenseifner",
    chunks=largest_power,
    formula="2*lg(P)*a + 2*n*(P-1)/P*b + n*(P-1)/P*g + fold*(a + n*b + n*g)",
)
def rabenseifner_reduce(rank, size, *, root):
    """Recursive halving, then the parts run together in a binomial tree at the root."""
    power = largest_power(size)
    v = (rank - root) % size  # ranks counted from the root, so that the root is number 0
    everything = range(power)

    def rank_at(number):
        return (rank_of(number, size) + root) % size

    if is_guest(v, size):
        yield tuple(Send((rank - 1) % size, chunk) for chunk in everything)
        return

    if has_guest(v, size):
        yield tuple(Reduce((rank + 1) % size, chunk) for chunk in everything)
    elif not power_of_two(size):
        yield ()
    number = number_of(v, size)
    yield from halve(number, power, rank_at, lambda one: (one,))
    for distance in distances(power):
        if number % (2 * distance) == 0:
            child = number + distance
            yield tuple(Recv(rank_at(child), chunk) for chunk in group(child, distance))
        elif number % (2 * distance) == distance:
            parent = rank_at(number - distance)
            yield tuple(Send(parent, chunk) for chunk in group(number, distance))
        else:
            yield ()
