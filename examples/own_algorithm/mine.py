"""An all-reduce of one's own, for programs that know nothing of it.

    TEACHDIST_ALGORITHMS=mine.py TEACHDIST_ALL_REDUCE=mine torchrun --nproc-per-node 4 train.py

It is proven when it is registered; a wrong one is refused with a counter-example.
"""

import teachdist
from teachdist.collectives import Recv, Reduce, Send


@teachdist.algorithm("all_reduce", chunks=lambda size: size)
def mine(rank, size):
    """Chunk c sets out at rank c, collects on its way around, and goes around once more."""
    right, left = (rank + 1) % size, (rank - 1) % size
    for step in range(size - 1):
        yield Send(right, (rank - step) % size), Reduce(left, (rank - step - 1) % size)
    for step in range(size - 1):
        yield Send(right, (rank - step + 1) % size), Recv(left, (rank - step) % size)
