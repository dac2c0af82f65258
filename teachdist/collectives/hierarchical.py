"""Two levels: few and small messages between hosts, the rest inside.

The idea: a link inside a host is ten or a hundred times faster than one between hosts. So first do
inside each host what can be done there; then let the hosts exchange what is left; then spread it
inside again.

All-reduce, m ranks on each of q hosts: a reduce-scatter inside each host, after which the i-th rank
of each host has the host's sum of the i-th m-th of the data. The i-th ranks of all hosts are a
*lane*, and each lane does an all-reduce of its m-th between hosts, all lanes at once. An all-gather
inside each host brings the parts together.

    2 hosts with 3 ranks, lanes drawn as columns

    host 0      [ 0 ]--[ 1 ]--[ 2 ]      rings inside: reduce-scatter, later all-gather
                  |      |      |
    host 1      [ 3 ]--[ 4 ]--[ 5 ]      rings between, one per lane: all-reduce of a third each

If hosts differ in their number of ranks, there are as many lanes as the smallest host has ranks,
and the others are guests of their host's lane ranks.

Broadcast, reduce, all-gather and barrier: one rank per host, its *leader*, speaks for the host.

Cost of the all-reduce (a1, b1 inside, a2, b2 between): 2(m-1)a1 + 2n(m-1)/m b1 + 2(q-1)a2 +
2(n/m)(q-1)/q b2 + n(p-1)/p g.

Source: Karonis et al., "Exploiting hierarchy in parallel computer networks to optimize collective
operation performance" (2000); Cho, Finkler, Kung, Hunter, "BlueConnect: decomposing all-reduce for
deep learning on heterogeneous network hierarchy" (2019).
"""

from functools import lru_cache

from teachdist.collectives.catalog import algorithm
from teachdist.collectives.dissemination import dissemination
from teachdist.collectives.powers import distances
from teachdist.collectives.ring import ring, ring_all_gather, ring_reduce_scatter
from teachdist.collectives.schedule import Recv, Reduce, Send
from teachdist.collectives.tree import binomial_broadcast, binomial_gather, binomial_reduce


@lru_cache(maxsize=64)
def by_host(hosts):
    """The ranks of each host, hosts in order of their first rank."""
    groups = {}
    for rank, host in enumerate(hosts):
        groups.setdefault(host, []).append(rank)
    return list(groups.values())


def among(members, rounds, pieces):
    """Rounds written for ranks 0, 1, ..., done by `members`; its chunk c stands for `pieces[c]`."""
    for actions in rounds:
        if isinstance(actions, (Send, Recv, Reduce)):
            actions = (actions,)
        yield tuple(
            type(action)(members[action[0]], chunk)
            for action in actions
            for chunk in pieces[action.chunk]
        )


def lasting(count, rounds):
    """Rounds, followed by rests until there are `count`: the next phase begins on all together."""
    done = 0
    for actions in rounds:
        yield actions
        done += 1
    for _ in range(count - done):
        yield ()


@algorithm(
    "all_reduce",
    "two_level",
    chunks=lambda size: size,
    formula=("2*(m-1)*a + 2*n*(m-1)/m*b + 2*(q-1)*a2 + 2*n/m*(q-1)/q*b2 + n*(p-1)/p*g"),
)
def two_level(rank, size, *, hosts):
    """Reduce-scatter inside, all-reduce between hosts in each lane, all-gather inside."""
    groups = by_host(hosts)
    lanes = min(map(len, groups))
    here = next(group for group in groups if rank in group)
    place = here.index(rank)
    lane = place % lanes
    guests = here[lane + lanes :: lanes]
    uneven = any(len(group) > lanes for group in groups)
    between = 2 * (len(groups) - 1)

    if place >= lanes:
        yield tuple(Send(here[lane], chunk) for chunk in range(size))
        yield from lasting(2 * (lanes - 1) + between, ())
        yield tuple(Recv(here[lane], chunk) for chunk in range(size))
        return

    if uneven:
        yield tuple(Reduce(guest, chunk) for guest in guests for chunk in range(size))
    inside = here[:lanes]
    of_lane = [range(one, size, lanes) for one in range(lanes)]
    mine = of_lane[lane]
    of_host = [mine[one :: len(groups)] for one in range(len(groups))]
    across = [group[lane] for group in groups]

    yield from among(inside, ring_reduce_scatter(lane, lanes), of_lane)
    yield from among(across, ring(across.index(rank), len(across)), of_host)
    yield from among(inside, ring_all_gather(lane, lanes), of_lane)
    if guests:
        yield tuple(Send(guest, chunk) for guest in guests for chunk in range(size))


def _leading(rank, hosts, root):
    """My host's ranks, the leaders of all hosts, and the rounds of a tree inside any host.

    The root leads its host; elsewhere the first rank does.
    """
    groups = by_host(hosts)
    leaders = [root if root in group else group[0] for group in groups]
    here = next(group for group in groups if rank in group)
    return here, leaders, max(len(distances(len(group))) for group in groups)


@algorithm(
    "broadcast",
    "two_level",
    formula="<= ceil(lg(q))*(a2 + n*b2) + ceil(lg(m))*(a + n*b)",
)
def two_level_broadcast(rank, size, *, root, hosts):
    """From the root to the leaders of the other hosts, then inside each host."""
    here, leaders, _ = _leading(rank, hosts, root)
    whole = [(0,)]
    leader = next(one for one in leaders if one in here)
    if rank == leader:
        rounds = binomial_broadcast(leaders.index(rank), len(leaders), root=leaders.index(root))
        yield from among(leaders, rounds, whole)
    else:
        yield from lasting(len(distances(len(leaders))), ())
    rounds = binomial_broadcast(here.index(rank), len(here), root=here.index(leader))
    yield from among(here, rounds, whole)


@algorithm(
    "reduce",
    "two_level",
    formula="<= ceil(lg(m))*(a + n*b + n*g) + ceil(lg(q))*(a2 + n*b2 + n*g)",
)
def two_level_reduce(rank, size, *, root, hosts):
    """Inside each host to its leader, then from the leaders to the root."""
    here, leaders, inside = _leading(rank, hosts, root)
    whole = [(0,)]
    leader = next(one for one in leaders if one in here)
    rounds = binomial_reduce(here.index(rank), len(here), root=here.index(leader))
    yield from lasting(inside, among(here, rounds, whole))
    if rank == leader:
        rounds = binomial_reduce(leaders.index(rank), len(leaders), root=leaders.index(root))
        yield from among(leaders, rounds, whole)


@algorithm("barrier", "two_level", formula="2*ceil(lg(m))*a + ceil(lg(q))*a2")
def two_level_barrier(rank, size, *, hosts):
    """Report to the leader, the leaders spread the word among themselves, then inside."""
    here, leaders, inside = _leading(rank, hosts, 0)
    whole = [(0,)]
    place = here.index(rank)
    yield from lasting(inside, among(here, binomial_reduce(place, len(here), root=0), whole))
    if place == 0:
        rounds = dissemination(leaders.index(rank), len(leaders))
        yield from among(leaders, rounds, whole)
    else:
        yield from lasting(len(distances(len(leaders))), ())
    yield from among(here, binomial_broadcast(place, len(here), root=0), whole)


@algorithm(
    "all_gather",
    "two_level",
    formula=("ceil(lg(m))*a + n*(m-1)/p*b + (q-1)*a2 + n*(q-1)/q*b2 + ceil(lg(m))*(a + n*b)"),
)
def two_level_all_gather(rank, size, *, hosts):
    """Gather inside, the leaders exchange their hosts' blocks in a ring, then spread inside."""
    here, leaders, inside = _leading(rank, hosts, 0)
    place = here.index(rank)
    rounds = binomial_gather(place, len(here), root=0)
    yield from lasting(inside, among(here, rounds, [(member,) for member in here]))
    if place == 0:
        rounds = ring_all_gather(leaders.index(rank), len(leaders))
        yield from among(leaders, rounds, by_host(hosts))
    else:
        yield from lasting(len(leaders) - 1, ())
    yield from among(here, binomial_broadcast(place, len(here), root=0), [range(size)])
