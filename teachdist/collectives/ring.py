"""Ring: everybody talks only to the two neighbours, and every link is busy in every round.

The idea: cut the data into as many chunks as there are ranks. In the first half, the
reduce-scatter, chunk c starts at rank c + 1 and travels once around, collecting a contribution at
each stop, until it is complete on rank c. All chunks travel at once, one behind the other. In the
second half, the all-gather, the complete chunks travel around once more and everybody keeps a copy.

    reduce-scatter, 4 ranks: what rank r sends to rank r + 1

    round     rank 0    rank 1    rank 2    rank 3
      0       chunk 3   chunk 0   chunk 1   chunk 2
      1       chunk 2   chunk 3   chunk 0   chunk 1
      2       chunk 1   chunk 2   chunk 3   chunk 0     afterwards chunk r is complete on rank r

Cost of the all-reduce (n bytes, p ranks): 2(p-1)a + 2n(p-1)/p b + n(p-1)/p g. The bytes are the
least possible, whatever the number of ranks; the number of rounds grows with it, so the ring is for
large data.

Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations"
(2009).
"""

from teachdist.collectives.catalog import algorithm
from teachdist.collectives.schedule import Recv, Reduce, Send


@algorithm(
    "reduce_scatter", "ring", formula="(p-1)*a + n*(p-1)/p*b + n*(p-1)/p*g", symmetry="shift"
)
def ring_reduce_scatter(rank, size):
    """Each chunk goes once around and collects; chunk r is complete on rank r at the end."""
    right, left = (rank + 1) % size, (rank - 1) % size
    for step in range(size - 1):
        yield Send(right, (rank - 1 - step) % size), Reduce(left, (rank - 2 - step) % size)


@algorithm("all_gather", "ring", formula="(p-1)*a + n*(p-1)/p*b", symmetry="shift")
def ring_all_gather(rank, size):
    """Each block goes once around; everybody passes on what came in the round before."""
    right, left = (rank + 1) % size, (rank - 1) % size
    for step in range(size - 1):
        yield Send(right, (rank - step) % size), Recv(left, (rank - 1 - step) % size)


@algorithm(
    "all_reduce",
    "ring",
    chunks=lambda size: size,
    formula="2*(p-1)*a + 2*n*(p-1)/p*b + n*(p-1)/p*g",
    symmetry="shift",
)
def ring(rank, size):
    """Reduce-scatter, then all-gather, each once around the ring."""
    yield from ring_reduce_scatter(rank, size)
    yield from ring_all_gather(rank, size)
