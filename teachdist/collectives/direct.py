"""Direct: everybody sends to everybody at once.

The idea: nothing is passed on; each block goes straight from where it is to where it is wanted.
One round, and so the shortest way when latency is all that counts and the data is small.

    all_gather, 3 ranks, the only round

    rank 0 --0--> 1, 2
    rank 1 --1--> 0, 2
    rank 2 --2--> 0, 1

Each rank has one port: it must push out p-1 messages one after the other, and as many come in. So a
single round still costs (p-1)a. The ranks send to their nearest neighbour first, so that no two of
them aim at the same port at the same time.

Cost: all-gather, reduce-scatter, all-to-all (p-1)a + n(p-1)/p b (+ n(p-1)/p g); the one-round
all-reduce sends the whole tensor to everybody, (p-1)(a + nb + ng). "Two-shot" is the all-reduce
made of the direct reduce-scatter and the direct all-gather: as few bytes as the ring, in two
rounds; its reduce gathers at the root instead. A barrier, in which nothing is sent but "I have
come": (p-1)a.

Where ranks share memory (`model/shared_memory.py`), a round costs one alpha and a chunk is written
once for all
readers: there one-shot is the best for small data, two-shot for large.

Source: Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH"
(2005), for the direct exchanges; "one-shot" and "two-shot" are the names that GPU libraries use.
"""

from teachdist.collectives.catalog import algorithm
from teachdist.collectives.schedule import Recv, Reduce, Send


def others(rank, size):
    """All other ranks, the next one first."""
    return [(rank + step) % size for step in range(1, size)]


def others_before(rank, size):
    """All other ranks in the order in which their messages come in, the previous one first."""
    return [(rank - step) % size for step in range(1, size)]


@algorithm("all_reduce", "direct", formula="(p-1)*(a + n*b + n*g)", symmetry="shift")
def direct(rank, size):
    """Everybody sends everything to everybody and adds up for itself."""
    yield (
        *(Send(peer, 0) for peer in others(rank, size)),
        *(Reduce(peer, 0) for peer in others_before(rank, size)),
    )


@algorithm(
    "reduce_scatter", "direct", formula="(p-1)*a + n*(p-1)/p*b + n*(p-1)/p*g", symmetry="shift"
)
def direct_reduce_scatter(rank, size):
    """Everybody sends chunk r straight to rank r, which adds up."""
    yield (
        *(Send(peer, peer) for peer in others(rank, size)),
        *(Reduce(peer, rank) for peer in others_before(rank, size)),
    )


@algorithm("all_gather", "direct", formula="(p-1)*a + n*(p-1)/p*b", symmetry="shift")
def direct_all_gather(rank, size):
    """Everybody sends its block to everybody."""
    yield (
        *(Send(peer, rank) for peer in others(rank, size)),
        *(Recv(peer, peer) for peer in others_before(rank, size)),
    )


@algorithm(
    "all_reduce",
    "two_shot",
    chunks=lambda size: size,
    formula="2*(p-1)*a + 2*n*(p-1)/p*b + n*(p-1)/p*g",
    symmetry="shift",
)
def two_shot(rank, size):
    """Everybody adds up one chunk, then hands it to everybody."""
    yield from direct_reduce_scatter(rank, size)
    yield from direct_all_gather(rank, size)


@algorithm(
    "reduce",
    "two_shot",
    chunks=lambda size: size,
    formula="2*(p-1)*a + 2*n*(p-1)/p*b + n*(p-1)/p*g",
)
def two_shot_reduce(rank, size, *, root):
    """Everybody adds up one chunk, then hands it to the root."""
    yield from direct_reduce_scatter(rank, size)
    if rank == root:
        yield tuple(Recv(peer, peer) for peer in others_before(root, size))
    else:
        yield Send(root, rank)


@algorithm("barrier", "direct", formula="(p-1)*a", symmetry="shift")
def direct_barrier(rank, size):
    """Everybody tells everybody, and waits for everybody."""
    yield from direct(rank, size)


@algorithm("all_to_all", "direct", formula="(p-1)*a + n*(p-1)/p*b", symmetry="shift")
def direct_all_to_all(rank, size):
    """Every block goes straight to its destination, all in one round."""
    yield (
        *(Send(peer, rank * size + peer) for peer in others(rank, size)),
        *(Recv(peer, peer * size + rank) for peer in others_before(rank, size)),
    )
