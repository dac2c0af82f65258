"""Scatter + all-gather: a broadcast in which everybody's link helps.

The idea: in a tree broadcast the root sends the whole data again and again. Instead it hands each
rank a different p-th (a scatter, down a binomial tree), and then the ranks give each other what
they have (an all-gather). Nobody sends much more than the data once, twice at most.

    4 ranks        rank 0     rank 1     rank 2     rank 3
    start          0 1 2 3
    scatter        0 1 2 3      1          2 3        3
    all-gather     0 1 2 3    0 1 2 3    0 1 2 3    0 1 2 3

Cost: with the ring (lg p + p - 1)a + 2n(p-1)/p b; with Bruck's all-gather 2 ceil(lg p)a +
2n(p-1)/p b. Twice the bytes of the least possible, so for large data among many ranks.

Source: Barnett, Gupta, Payne, Shuler, van de Geijn, Watts, "Interprocessor collective communication
library (InterCom)" (1994); Thakur, Rabenseifner, Gropp (2005).
"""

from teachdist.collectives.bruck import bruck_all_gather
from teachdist.collectives.catalog import algorithm
from teachdist.collectives.ring import ring_all_gather
from teachdist.collectives.tree import binomial_scatter


@algorithm(
    "broadcast",
    "scatter_ring",
    chunks=lambda size: size,
    formula="(ceil(lg(p)) + p - 1)*a + 2*n*(p-1)/p*b",
)
def scatter_ring(rank, size, *, root):
    """Scatter, then the ring's all-gather."""
    yield from binomial_scatter(rank, size, root=root)
    yield from ring_all_gather(rank, size)


@algorithm(
    "broadcast",
    "scatter_bruck",
    chunks=lambda size: size,
    formula="2*ceil(lg(p))*a + 2*n*(p-1)/p*b",
)
def scatter_bruck(rank, size, *, root):
    """Scatter, then Bruck's all-gather."""
    yield from binomial_scatter(rank, size, root=root)
    yield from bruck_all_gather(rank, size)
