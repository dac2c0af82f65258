"""Pipelined chain: cut the data into pieces and pass them along, one behind the other.

The idea: in a chain 0 -> 1 -> 2 -> ... each rank passes on what it gets. With the data in one piece
only one link is busy at a time. Cut into k pieces, rank 1 passes on the first piece while the
second comes in, and soon all links are busy.

    broadcast, 4 ranks, 3 pieces: which piece is on which link

    round    0->1   1->2   2->3
      0       0
      1       1      0
      2       2      1      0
      3              2      1
      4                     2

Cost: broadcast (p+k-2)(a + nb/k), reduce (p+k-2)(a + nb/k + ng/k). With many pieces and large data
this nears nb, the time to send the data once. Few ranks and much data is where the chain is best.
The best k is sqrt((p-2)nb/a); the catalogue's chain has 8 pieces.

Source: Chan, Heimlich, Purkayastha, van de Geijn, "Collective communication: theory, practice, and
experience" (2007); Watts and van de Geijn, "A pipelined broadcast for multidimensional meshes"
(1995).
"""

from teachdist.collectives.catalog import algorithm
from teachdist.collectives.schedule import Recv, Reduce, Send

PIECES = 8


def _moving(place, number):
    """The piece that leaves the `place`-th rank of the chain in round `number`, or None."""
    piece = number - place
    return piece if 0 <= piece < PIECES else None


@algorithm("broadcast", "chain", chunks=PIECES, formula="(p+k-2)*(a + n/k*b)")
def chain_broadcast(rank, size, *, root):
    """Pass on the piece that came in the round before."""
    place = (rank - root) % size
    following, previous = (rank + 1) % size, (rank - 1) % size
    for number in range(size + PIECES - 2):
        actions = []
        leaving, coming = _moving(place, number), _moving(place - 1, number)
        if leaving is not None and place < size - 1:
            actions.append(Send(following, leaving))
        if coming is not None and place > 0:
            actions.append(Recv(previous, coming))
        yield tuple(actions)


@algorithm("reduce", "chain", chunks=PIECES, formula="<= (p+k-2)*(a + n/k*b + n/k*g)")
def chain_reduce(rank, size, *, root):
    """Towards the root: add my part to the piece that came in the round before, pass it on."""
    place = size - 1 - (rank - root) % size  # the root is the last in the chain
    following, previous = (rank - 1) % size, (rank + 1) % size
    for number in range(size + PIECES - 2):
        actions = []
        leaving, coming = _moving(place, number), _moving(place - 1, number)
        if leaving is not None and place < size - 1:
            actions.append(Send(following, leaving))
        if coming is not None and place > 0:
            actions.append(Reduce(previous, coming))
        yield tuple(actions)


@algorithm("all_reduce", "chain", chunks=PIECES, formula="<= (p+k-2)*(2*a + 2*n/k*b + n/k*g)")
def chain(rank, size):
    """Down the chain to rank 0, adding up, and back again."""
    yield from chain_reduce(rank, size, root=0)
    yield from chain_broadcast(rank, size, root=0)
