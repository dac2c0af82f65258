"""Linear: the root does everything itself.

The idea: what anybody would write first. The root sends to each rank in turn, or receives from each
in turn; nobody else does anything.

    broadcast from 0, 4 ranks             gather to 0, 4 ranks

    0 --> 1                               1 --> 0
    0 --> 2                               2 --> 0
    0 --> 3                               3 --> 0

Cost: (p-1)(a + nb) for a broadcast, (p-1)(a + nb + ng) for a reduce: the root's port is the
bottleneck. For gather and scatter, where each rank's block differs, the bytes (n(p-1)/p b) cannot
be fewer, and only the p-1 latencies can be beaten.

Source: the "linear" or "flat tree" algorithms of every MPI library.
"""

from teachdist.collectives.catalog import algorithm
from teachdist.collectives.direct import others, others_before
from teachdist.collectives.schedule import Recv, Reduce, Send


@algorithm("broadcast", "linear", formula="(p-1)*(a + n*b)")
def linear_broadcast(rank, size, *, root):
    """The root sends to everybody."""
    if rank == root:
        yield tuple(Send(peer, 0) for peer in others(root, size))
    else:
        yield Recv(root, 0)


@algorithm("reduce", "linear", formula="(p-1)*(a + n*b + n*g)")
def linear_reduce(rank, size, *, root):
    """Everybody sends to the root, which adds up."""
    if rank == root:
        yield tuple(Reduce(peer, 0) for peer in others_before(root, size))
    else:
        yield Send(root, 0)


@algorithm("gather", "linear", formula="(p-1)*a + n*(p-1)/p*b")
def linear_gather(rank, size, *, root):
    """Everybody sends its block to the root."""
    if rank == root:
        yield tuple(Recv(peer, peer) for peer in others_before(root, size))
    else:
        yield Send(root, rank)


@algorithm("scatter", "linear", formula="(p-1)*a + n*(p-1)/p*b")
def linear_scatter(rank, size, *, root):
    """The root sends each rank its block."""
    if rank == root:
        yield tuple(Send(peer, peer) for peer in others(root, size))
    else:
        yield Recv(root, rank)


@algorithm("all_reduce", "linear", formula="2*(p-1)*(a + n*b) + (p-1)*n*g")
def linear_all_reduce(rank, size):
    """A reduce to rank 0, then a broadcast from it."""
    yield from linear_reduce(rank, size, root=0)
    yield from linear_broadcast(rank, size, root=0)


@algorithm("barrier", "linear", formula="2*(p-1)*a")
def linear_barrier(rank, size):
    """Everybody reports to rank 0; when all have, it tells everybody."""
    yield from linear_all_reduce(rank, size)
