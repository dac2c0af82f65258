"""Pairwise exchange: in each round everybody has exactly one partner to send to.

The idea: the direct exchange, spread over p-1 rounds so that each port carries one message at a
time and nothing has to be buffered. In round i rank r sends to r + i and receives from r - i.

    all_to_all, 4 ranks: r sends to

    round    r=0   r=1   r=2   r=3
      0       1     2     3     0
      1       2     3     0     1
      2       3     0     1     2

Cost: (p-1)a + n(p-1)/p b, for reduce-scatter also n(p-1)/p g. No block is sent twice, so the bytes
are the least possible; good for large blocks.

Source: Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH"
(2005), all-to-all for long messages and reduce-scatter for long messages.
"""

from teachdist.collectives.catalog import algorithm
from teachdist.collectives.schedule import Recv, Reduce, Send


@algorithm("all_to_all", "pairwise", formula="(p-1)*a + n*(p-1)/p*b", symmetry="shift")
def pairwise(rank, size):
    """My block for r + i goes straight there, while the one from r - i comes."""
    for step in range(1, size):
        to, source = (rank + step) % size, (rank - step) % size
        yield Send(to, rank * size + to), Recv(source, source * size + rank)


@algorithm(
    "reduce_scatter", "pairwise", formula="(p-1)*a + n*(p-1)/p*b + n*(p-1)/p*g", symmetry="shift"
)
def pairwise_reduce_scatter(rank, size):
    """My part of chunk r + i goes straight to its owner, while one for my chunk comes."""
    for step in range(1, size):
        to, source = (rank + step) % size, (rank - step) % size
        yield Send(to, to), Reduce(source, rank)
