"""Binomial tree: whoever has the data helps to spread it.

The idea: in each round everybody who has the data sends it to somebody who has not, so their number
doubles. Count ranks from the root (v = rank - root): the distance between sender and receiver
halves from round to round, and the round in which v receives is told by its lowest one bit.

    broadcast, 8 ranks, v in binary

    round 0   000 -> 100
    round 1   000 -> 010   100 -> 110
    round 2   000 -> 001   010 -> 011   100 -> 101   110 -> 111

A reduce is the same tree, backwards in time and with every arrow turned. A scatter sends along each
arrow the blocks of the receiver's whole subtree, which is v .. v + distance - 1; a gather is the
scatter backwards.

Cost: broadcast ceil(lg p)(a + nb), reduce ceil(lg p)(a + nb + ng), gather and scatter
ceil(lg p)a + n(p-1)/p b.

Source: Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH"
(2005).
"""

from teachdist.collectives.catalog import algorithm
from teachdist.collectives.powers import distances
from teachdist.collectives.schedule import Recv, Reduce, Send


def _role(v, size, distance):
    """What v is in the round of `distance`: "parent" or "child", and of whom; or nothing."""
    if v % (2 * distance) == 0 and v + distance < size:
        return "parent", v + distance
    if v % (2 * distance) == distance:
        return "child", v - distance
    return "", v


@algorithm("broadcast", "binomial", formula="ceil(lg(p))*(a + n*b)")
def binomial_broadcast(rank, size, *, root):
    """From the largest distance to the smallest; a rank forwards from when it has the data."""
    v = (rank - root) % size
    for distance in reversed(distances(size)):
        role, other = _role(v, size, distance)
        peer = (other + root) % size
        if role == "parent":
            yield Send(peer, 0)
        elif role == "child":
            yield Recv(peer, 0)
        else:
            yield ()


@algorithm("reduce", "binomial", formula="<= ceil(lg(p))*(a + n*b + n*g)")
def binomial_reduce(rank, size, *, root):
    """From the smallest distance to the largest; whoever has sent is done."""
    v = (rank - root) % size
    for distance in distances(size):
        role, other = _role(v, size, distance)
        peer = (other + root) % size
        if role == "parent":
            yield Reduce(peer, 0)
        elif role == "child":
            yield Send(peer, 0)
        else:
            yield ()


def _subtree(v, size, root, distance):
    """The real ranks of the subtree that hangs at v when its parent is `distance` away."""
    return [(member + root) % size for member in range(v, min(v + distance, size))]


@algorithm("scatter", "binomial", formula="ceil(lg(p))*a + n*(p-1)/p*b")
def binomial_scatter(rank, size, *, root):
    """Each arrow carries the blocks of everybody behind it."""
    v = (rank - root) % size
    for distance in reversed(distances(size)):
        role, other = _role(v, size, distance)
        peer = (other + root) % size
        if role == "parent":
            yield tuple(Send(peer, block) for block in _subtree(other, size, root, distance))
        elif role == "child":
            yield tuple(Recv(peer, block) for block in _subtree(v, size, root, distance))
        else:
            yield ()


@algorithm("gather", "binomial", formula="ceil(lg(p))*a + n*(p-1)/p*b")
def binomial_gather(rank, size, *, root):
    """Each arrow carries the blocks that have come together behind it."""
    v = (rank - root) % size
    for distance in distances(size):
        role, other = _role(v, size, distance)
        peer = (other + root) % size
        if role == "parent":
            yield tuple(Recv(peer, block) for block in _subtree(other, size, root, distance))
        elif role == "child":
            yield tuple(Send(peer, block) for block in _subtree(v, size, root, distance))
        else:
            yield ()


@algorithm("all_reduce", "binomial", formula="<= 2*ceil(lg(p))*(a + n*b) + ceil(lg(p))*n*g")
def binomial_all_reduce(rank, size):
    """Up the tree to rank 0 and down again."""
    yield from binomial_reduce(rank, size, root=0)
    yield from binomial_broadcast(rank, size, root=0)


@algorithm("barrier", "binomial", formula="2*ceil(lg(p))*a")
def binomial_barrier(rank, size):
    """Up the tree when my subtree has come, down when all have."""
    yield from binomial_all_reduce(rank, size)
