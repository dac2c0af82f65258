"""Dissemination: a rumour that everybody spreads, twice as far in each round.

The idea: in round k everybody tells rank r + 2^k all it knows. After round k each rank knows of the
2^(k+1) ranks up to itself, so ceil(lg p) rounds are enough for any number of ranks, and no rank is
special. Around the ring some news arrives twice; for a barrier that does no harm, because "has
come" and "has come" is still "has come". (A sum would count those twice, which is why this isn't
an all-reduce.)

    6 ranks: whom rank 5 knows of

    round 0   from 4     {4 5}
    round 1   from 3     {2 3 4 5}
    round 2   from 1     {0 1} + {4 5}, again -> everybody

Cost: ceil(lg p) a, the fewest rounds possible.

Source: Hensgen, Finkel, Manber, "Two algorithms for barrier synchronization" (1988).
"""

from teachdist.collectives.catalog import algorithm
from teachdist.collectives.powers import distances
from teachdist.collectives.schedule import Reduce, Send


@algorithm("barrier", "dissemination", formula="ceil(lg(p))*a", symmetry="shift")
def dissemination(rank, size):
    """In each round tell the rank `distance` ahead, listen to the one `distance` behind."""
    for distance in distances(size):
        yield Send((rank + distance) % size, 0), Reduce((rank - distance) % size, 0)
