"""The exercises: what to write, with what to begin, and how good it has to be.

The idea: from the first broadcast to a two-level all-reduce, each task adds one thought to the one
before. The solutions are the catalogue itself, and `target` names the one that an answer is
measured against; the prose of its file explains it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from teachdist.collectives.powers import largest_power, power_of_two
from teachdist.collectives.schedule import Action, Send


class Task(NamedTuple):
    """One exercise. `nbytes` and `ranks` are the case in which the answer's time is compared."""

    name: str
    op: str
    target: str
    text: str
    starter: str
    hint: str
    chunks: int | Callable[[int], int] | None = None
    when: Callable[[int], bool] | None = None
    nbytes: int = 1 << 20
    ranks: int = 8
    topology: str = "loopback"
    rule: Callable[[int, int, tuple[Action, ...]], str | None] | None = None


def to_the_right(rank, size, actions):
    """The rule of the rings: one chunk per round, and to the right neighbour."""
    sent = [action for action in actions if isinstance(action, Send)]
    for action in sent:
        if action.to != (rank + 1) % size:
            return f"sends to rank {action.to}; the task allows its right neighbour only"
    return f"sends {len(sent)} chunks; the task allows one per round" if len(sent) > 1 else None


def one_receiver(rank, size, actions):
    """The rule of pairwise exchange: send to one rank, receive from one rank."""
    receivers = sorted({action.to for action in actions if isinstance(action, Send)})
    sources = sorted({action.source for action in actions if not isinstance(action, Send)})
    for ranks, what in ((receivers, "sends to"), (sources, "receives from")):
        if len(ranks) > 1:
            return f"{what} ranks {', '.join(map(str, ranks))} at once; the task allows one rank"
    return None


def _size(size):
    return size


_TASKS = (
    Task(
        "linear_broadcast",
        "broadcast",
        "linear",
        "Rank `root` has the data, chunk 0; at the end every rank must have it. Write the simplest "
        "thing that works: the root sends chunk 0 to everybody, and everybody else receives it. "
        "All messages of the root may be in one round.",
        "def linear_broadcast(rank, size, *, root):\n"
        "    if rank == root:\n"
        "        yield tuple(Send(peer, 0) for peer in ...)\n"
        "    else:\n"
        "        yield ...\n",
        "The root doesn't send to itself. A round may be one action or a tuple of actions.",
    ),
    Task(
        "tree_broadcast",
        "broadcast",
        "binomial",
        "The same broadcast, but whoever has the data already helps to spread it. In each round "
        "every rank that has it sends it to one that hasn't, so that ceil(lg size) rounds are "
        "enough. Count ranks from the root: v = (rank - root) % size.",
        "def tree_broadcast(rank, size, *, root):\n"
        "    v = (rank - root) % size\n"
        "    distance = 1\n"
        "    while distance < size:\n"
        "        # who sends to whom in this round? A rank with nothing to do yields ().\n"
        "        yield ()\n"
        "        distance *= 2\n",
        "Ranks with v < distance have the data; each may send to v + distance if that exists.",
    ),
    Task(
        "pipeline",
        "broadcast",
        "chain",
        "A broadcast along the chain root, root + 1, root + 2, ...: each rank passes on what it "
        "gets. The data is cut into 8 chunks. Don't wait for all of them: pass on chunk 0 while "
        "chunk 1 comes in.",
        "def pipeline(rank, size, *, root):\n"
        "    place = (rank - root) % size\n"
        "    for number in range(size + 8 - 2):\n"
        "        # which chunk leaves me in this round, which one comes?\n"
        "        yield ()\n",
        "Chunk c leaves the rank at `place` in round place + c, if there is a next rank.",
        chunks=8,
        nbytes=1 << 24,
        ranks=4,
    ),
    Task(
        "barrier",
        "barrier",
        "dissemination",
        "Nobody may leave before everybody has come. Chunk 0 is the set of the ranks that a rank "
        "knows to have come; Reduce unites two sets, and it does no harm if a rank is in both. Use "
        "the fewest rounds, ceil(lg size), for any number of ranks.",
        "def barrier(rank, size):\n"
        "    distance = 1\n"
        "    while distance < size:\n"
        "        yield ...\n"
        "        distance *= 2\n",
        "A rumour: in each round tell the rank `distance` ahead all that you know.",
        ranks=11,
    ),
    Task(
        "ring_all_gather",
        "all_gather",
        "ring",
        "Rank r has block r, which is chunk r; at the end everybody must have all blocks. Each "
        "rank may send to its right neighbour only, (rank + 1) % size, one chunk per round.",
        "def ring_all_gather(rank, size):\n"
        "    right, left = (rank + 1) % size, (rank - 1) % size\n"
        "    for step in range(size - 1):\n"
        "        yield Send(right, ...), Recv(left, ...)\n",
        "In round 0 send your own chunk, then always the one that came in the round before.",
        rule=to_the_right,
    ),
    Task(
        "ring_reduce_scatter",
        "reduce_scatter",
        "ring",
        "Everybody has all chunks; at the end rank r must have the sum of everybody's chunk r. "
        "Each rank may send to its right neighbour only, one chunk per round. Beware of adding a "
        "contribution twice.",
        "def ring_reduce_scatter(rank, size):\n"
        "    right, left = (rank + 1) % size, (rank - 1) % size\n"
        "    for step in range(size - 1):\n"
        "        yield Send(right, ...), Reduce(left, ...)\n",
        "Chunk c must end at rank c, so its journey begins at rank c + 1.",
        rule=to_the_right,
    ),
    Task(
        "ring",
        "all_reduce",
        "ring",
        "The ring all-reduce: everybody has a tensor, cut into as many chunks as there are ranks, "
        "and at the end everybody must have the sum. Each rank sends one chunk per round, to its "
        "right neighbour. A reduce-scatter followed by an all-gather does it.",
        "def ring(rank, size):\n"
        "    right, left = (rank + 1) % size, (rank - 1) % size\n"
        "    for step in range(size - 1):\n"
        "        yield Send(right, ...), Reduce(left, ...)\n"
        "    for step in range(size - 1):\n"
        "        yield Send(right, ...), Recv(left, ...)\n",
        "The second half begins with the chunk that is complete on you after the first.",
        chunks=_size,
        rule=to_the_right,
    ),
    Task(
        "mend",
        "all_reduce",
        "two_shot",
        "This all-reduce is wrong. Have it checked, read the counter-example, and mend it with as "
        "little change as possible: everybody adds up one chunk and then hands it to everybody.",
        "def mend(rank, size):\n"
        "    others = [(rank + step) % size for step in range(1, size)]\n"
        "    yield (\n"
        "        *(Send(peer, peer) for peer in others),\n"
        "        *(Reduce(peer, rank) for peer in others),\n"
        "    )\n"
        "    yield (\n"
        "        *(Send(peer, rank) for peer in others),\n"
        "        *(Reduce(peer, peer) for peer in others),\n"
        "    )\n",
        "What comes in the second round is complete already; must it be added?",
        chunks=_size,
    ),
    Task(
        "doubling",
        "all_reduce",
        "doubling",
        "An all-reduce in lg size rounds, for powers of two: in each round swap everything (chunk "
        "0) with a partner and add, and let the partner's distance double.",
        "def doubling(rank, size):\n"
        "    distance = 1\n"
        "    while distance < size:\n"
        "        peer = ...\n"
        "        yield Send(peer, 0), Reduce(peer, 0)\n"
        "        distance *= 2\n",
        "Partners must choose each other: rank ^ distance does that.",
        when=power_of_two,
        nbytes=1000,
    ),
    Task(
        "pairwise",
        "all_to_all",
        "pairwise",
        "Rank s has a block for every rank d: chunk s * size + d. At the end rank d must have all "
        "blocks that are for it. Send in each round to one rank only, and let no two ranks send to "
        "the same one.",
        "def pairwise(rank, size):\n"
        "    for step in range(1, size):\n"
        "        to, source = ..., ...\n"
        "        yield Send(to, ...), Recv(source, ...)\n",
        "If you send `step` ranks ahead, from where does something come to you?",
        rule=one_receiver,
    ),
    Task(
        "bruck",
        "all_gather",
        "bruck",
        "An all-gather in ceil(lg size) rounds for any number of ranks. After k rounds you have "
        "the 2^k blocks rank, rank + 1, ...; get the next ones from rank + 2^k in one message.",
        "def bruck(rank, size):\n"
        "    distance = 1\n"
        "    while distance < size:\n"
        "        ahead, behind = (rank + distance) % size, (rank - distance) % size\n"
        "        yield ...\n"
        "        distance *= 2\n",
        "In the last round only min(distance, size - distance) blocks are missing.",
        nbytes=1000,
        ranks=11,
    ),
    Task(
        "rabenseifner",
        "all_reduce",
        "rabenseifner",
        "An all-reduce with few rounds and few bytes, for powers of two and as many chunks as "
        "ranks. First halve: with a partner at distance size / 2 give away half of the chunks and "
        "add up the other half, then half of that at distance size / 4, and so on, until chunk r "
        "is complete on rank r. Then collect the chunks by doubling.",
        "def rabenseifner(rank, size):\n"
        "    distance = size // 2\n"
        "    while distance:\n"
        "        peer = rank ^ distance\n"
        "        yield ...\n"
        "        distance //= 2\n"
        "    distance = 1\n"
        "    while distance < size:\n"
        "        peer = rank ^ distance\n"
        "        yield ...\n"
        "        distance *= 2\n",
        "The chunks that rank r still adds up after the round of `distance` are those from "
        "r - r % distance on, `distance` of them.",
        chunks=largest_power,
        when=power_of_two,
        nbytes=1 << 16,
    ),
    Task(
        "two_level",
        "all_reduce",
        "two_level",
        "An all-reduce that knows which ranks share a host: hosts[r] is the host of rank r. Links "
        "between hosts are slow, so add up inside each host first, let the i-th ranks of all hosts "
        "exchange only the i-th part, and spread the result inside. Hosts may have different "
        "numbers of ranks and any order; begin with equal ones, the check tells you when you meet "
        "the others. There are as many chunks as ranks.",
        "def two_level(rank, size, *, hosts):\n"
        "    here = [one for one in range(size) if hosts[one] == hosts[rank]]\n"
        "    # reduce-scatter among `here`, all-reduce across hosts, all-gather among `here`\n"
        "    yield ()\n",
        "With one rank per host that speaks for it, and all chunks of it, you get it right first. "
        "Then make it fast: nobody may be a crowded door, so share the chunks out among `here`.",
        chunks=_size,
        ranks=16,
        nbytes=1 << 24,
        topology="gpu_cluster",
    ),
)

TASKS: dict[str, Task] = {task.name: task for task in _TASKS}
