"""A plan: what one rank does in one collective, worked out once and kept.

An algorithm is a generator; running it for every call would cost more than sending a small
tensor. So its rounds are put in the form that the executor needs, and kept for the next call of
the same kind: per round the chunks for each peer as one message, the chunks from each peer in
the same order, and where several contributions meet, the order in which they are combined.
"""

from dataclasses import dataclass
from functools import lru_cache

from teachdist.collectives import Recv, Reduce, Send, get


@dataclass(frozen=True)
class Round:
    """One round of one rank. Chunks of a message are in ascending order on both sides."""

    sends: dict  # peer -> chunks
    takes: dict  # peer -> chunks
    reduces: dict  # chunk -> ranks whose contributions meet, ascending, this rank among them
    copies: frozenset  # (peer, chunk) that replace what is there
    sent: frozenset  # chunks that leave in this round: they may not be overwritten during it


@dataclass(frozen=True)
class Plan:
    """All rounds of one rank; `chunks` is how many the data is cut into."""

    algorithm: str
    chunks: int
    rounds: tuple


@lru_cache(maxsize=1024)
def plan(op, name, rank, size, root, hosts):
    """The plan of `rank` among `size` for an algorithm of the catalogue."""
    algorithm = get(op, name)
    rounds = algorithm.rounds(rank, size, root=root, hosts=hosts)
    return Plan(name, algorithm.chunks(size), tuple(_round(actions, rank) for actions in rounds))


def _round(actions, rank):
    sends, takes, reduces, copies = {}, {}, {}, set()
    for action in actions:
        if isinstance(action, Send):
            sends.setdefault(action.to, []).append(action.chunk)
            continue
        takes.setdefault(action.source, []).append(action.chunk)
        if isinstance(action, Reduce):
            reduces.setdefault(action.chunk, [rank]).append(action.source)
        elif isinstance(action, Recv):
            copies.add((action.source, action.chunk))
    return Round(
        {peer: sorted(chunks) for peer, chunks in sends.items()},
        {peer: sorted(chunks) for peer, chunks in takes.items()},
        {chunk: sorted(ranks) for chunk, ranks in reduces.items()},
        frozenset(copies),
        frozenset(chunk for chunks in sends.values() for chunk in chunks),
    )
