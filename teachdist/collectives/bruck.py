"""Bruck: ceil(lg p) rounds for any number of ranks, with no rank special.

The idea, all-gather: after k rounds rank r has the blocks r, r+1, ..., r + 2^k - 1 (counted around
the ring). It then gets from rank r + 2^k what that rank has, the next 2^k blocks. In the last round
it takes only as many as are missing, which is why p needn't be a power of two.

    all-gather, 5 ranks, the blocks of rank 0

    start     0
    round 0   0 1            from rank 1
    round 1   0 1 2 3        from rank 2
    round 2   0 1 2 3 4      from rank 4, one block

The idea, all-to-all: a block that must travel d ranks ahead does so in steps that are powers of
two, the ones in d's binary digits: in round k every rank passes on, 2^k ranks ahead, all blocks
whose d has bit k. Each block travels up to lg p times, but there are only lg p messages.

The reduce-scatter is the all-gather backwards in time with every arrow turned: what was copied
along an arrow is now added up along it. One after the other they make an all-reduce.

(Bruck's papers rotate the blocks in memory so that those to be sent lie side by side. Here a chunk
number means the same everywhere, so there is nothing to rotate.)

Cost: all-gather ceil(lg p)a + n(p-1)/p b; all-to-all with p a power of two lg p a + (n/2) lg p b;
all-reduce 2 ceil(lg p)a + 2n(p-1)/p b + n(p-1)/p g.

Source: Bruck, Ho, Kipnis, Upfal, Weathersby, "Efficient algorithms for all-to-all communications in
multiport message-passing systems" (1997); for the all-reduce Bar-Noy, Kipnis, Schieber, "An optimal
algorithm for computing census functions in message-passing systems" (1993) on the same pattern.
"""

from teachdist.collectives.catalog import algorithm
from teachdist.collectives.powers import distances
from teachdist.collectives.schedule import Recv, Reduce, Send


def _ahead(rank, size, distance):
    """The blocks that a round of `distance` moves and that begin with block `rank`."""
    return [(rank + step) % size for step in range(min(distance, size - distance))]


@algorithm("all_gather", "bruck", formula="ceil(lg(p))*a + n*(p-1)/p*b", symmetry="shift")
def bruck_all_gather(rank, size):
    """Get from `distance` ahead what that rank has; give mine to `distance` behind."""
    for distance in distances(size):
        ahead, behind = (rank + distance) % size, (rank - distance) % size
        yield (
            *(Send(behind, block) for block in _ahead(rank, size, distance)),
            *(Recv(ahead, block) for block in _ahead(ahead, size, distance)),
        )


@algorithm(
    "reduce_scatter",
    "bruck",
    formula="ceil(lg(p))*a + n*(p-1)/p*b + n*(p-1)/p*g",
    symmetry="shift",
)
def bruck_reduce_scatter(rank, size):
    """The all-gather backwards: give the sums for those ahead, add up what comes from behind."""
    for distance in reversed(distances(size)):
        ahead, behind = (rank + distance) % size, (rank - distance) % size
        yield (
            *(Send(ahead, chunk) for chunk in _ahead(ahead, size, distance)),
            *(Reduce(behind, chunk) for chunk in _ahead(rank, size, distance)),
        )


@algorithm(
    "all_reduce",
    "bruck",
    chunks=lambda size: size,
    formula="2*ceil(lg(p))*a + 2*n*(p-1)/p*b + n*(p-1)/p*g",
    symmetry="shift",
)
def bruck(rank, size):
    """Reduce-scatter, then all-gather, on the same pattern."""
    yield from bruck_reduce_scatter(rank, size)
    yield from bruck_all_gather(rank, size)


def _passing(rank, size, distance):
    """The chunks that are at `rank` before the round of `distance` and must go on in it.

    A chunk that travels d ahead has by then gone the part of d below `distance`.
    """
    for d in range(1, size):
        if d & distance:
            source = (rank - d % distance) % size
            yield source * size + (source + d) % size


@algorithm(
    "all_to_all",
    "bruck",
    formula="ceil(lg(p))*a + n/p*sum(d.bit_count() for d in range(p))*b",
    symmetry="shift",
)
def bruck_all_to_all(rank, size):
    """Each chunk goes ahead by the binary digits of the way it has to go."""
    for distance in distances(size):
        ahead, behind = (rank + distance) % size, (rank - distance) % size
        yield (
            *(Send(ahead, chunk) for chunk in _passing(rank, size, distance)),
            *(Recv(behind, chunk) for chunk in _passing(behind, size, distance)),
        )
