"""The three words that every algorithm is written in, and the table of what each collective means.

The idea: a collective moves named pieces of data, *chunks*, between ranks. A chunk number means
the same on every rank: what leaves as chunk 3 arrives as chunk 3. A collective is then defined by
two pictures, what every rank holds before and what it must hold after, and an algorithm is any
schedule of sends and receives that leads from the first picture to the second.

    all_reduce on 3 ranks, 1 chunk          all_gather on 3 ranks, chunk r belongs to rank r

    rank    before      after               rank    before        after
      0     0:{0}       0:{0,1,2}             0     0:{0}         0:{0} 1:{1} 2:{2}
      1     0:{1}       0:{0,1,2}             1     1:{1}         0:{0} 1:{1} 2:{2}
      2     0:{2}       0:{0,1,2}             2     2:{2}         0:{0} 1:{1} 2:{2}

"0:{0,1,2}" reads: chunk 0, to which ranks 0, 1 and 2 have contributed. A set of contributors is an
int in which bit r stands for rank r, so union is `|`, overlap is `&`, and a thousand ranks cost no
more than a few machine words. Where nothing is summed, the one bit names the rank that the data
comes from.

Sources: MPI: A Message-Passing Interface Standard, chapter "Collective Communication", for the
meanings; Chan, Heimlich, Purkayastha, van de Geijn, "Collective communication: theory, practice,
and experience" (2007), for definitions by before and after.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple


class Send(NamedTuple):
    """Send chunk `chunk`, as it is before this round, to rank `to`."""

    to: int
    chunk: int


class Recv(NamedTuple):
    """Receive chunk `chunk` from rank `source`; it replaces what is there after this round."""

    source: int
    chunk: int


class Reduce(NamedTuple):
    """Receive chunk `chunk` from rank `source` and combine it with what is there."""

    source: int
    chunk: int


Action = Send | Recv | Reduce

# (rank, size, root, chunks) -> {chunk: contributions}
Holding = Callable[[int, int, int, int], dict[int, int]]


@dataclass(frozen=True)
class Definition:
    """What a collective means: the chunks a rank holds at the start and must hold at the end.

    `start(rank, size, root, chunks)` and `end(rank, size, root, chunks)` answer with
    `{chunk: contributions}`, contributions being an int with bit r set for rank r. A chunk that
    `end` doesn't name may hold anything.
    """

    op: str
    meaning: str
    start: Holding
    end: Holding
    rooted: bool = False  # one rank, the root, is special
    reduces: bool = False  # contributions of several ranks are combined
    union: bool = False  # a contribution may come twice (combining is "or", as in a barrier)
    fixed_count: Callable[[int], int] | None = None  # None: the algorithm chooses the number

    def chunk_count(self, size: int, k: int = 1) -> int:
        """The number of chunks among `size` ranks, `k` being the algorithm's own choice."""
        return k if self.fixed_count is None else self.fixed_count(size)


def everybody(size: int) -> int:
    """The set of all ranks, as bits."""
    return (1 << size) - 1


def members(contributions: int) -> list[int]:
    """The ranks in a set of contributions, ascending."""
    found = []
    while contributions:
        lowest = contributions & -contributions
        found.append(lowest.bit_length() - 1)
        contributions ^= lowest
    return found


def _own_in_all(rank, size, root, chunks):
    return dict.fromkeys(range(chunks), 1 << rank)


def _sum_in_all(rank, size, root, chunks):
    return dict.fromkeys(range(chunks), everybody(size))


def _own_block(rank, size, root, chunks):
    return {rank: 1 << rank}


def _every_block(rank, size, root, chunks):
    return {block: 1 << block for block in range(size)}


def _only_root(holding: Holding) -> Holding:
    return lambda rank, size, root, chunks: (
        holding(rank, size, root, chunks) if rank == root else {}
    )


def _from_root(rank, size, root, chunks):
    return dict.fromkeys(range(chunks), 1 << root)


def _per_rank(size):
    return size


DEFINITIONS: dict[str, Definition] = {
    definition.op: definition
    for definition in (
        Definition(
            "all_reduce",
            "every rank has a tensor; afterwards every rank has the sum of all",
            start=_own_in_all,
            end=_sum_in_all,
            reduces=True,
        ),
        Definition(
            "reduce",
            "every rank has a tensor; afterwards the root has the sum of all",
            start=_own_in_all,
            end=_only_root(_sum_in_all),
            rooted=True,
            reduces=True,
        ),
        Definition(
            "broadcast",
            "the root has a tensor; afterwards every rank has it",
            start=_only_root(_from_root),
            end=_from_root,
            rooted=True,
        ),
        Definition(
            "all_gather",
            "rank r has block r; afterwards every rank has all blocks",
            start=_own_block,
            end=_every_block,
            fixed_count=_per_rank,
        ),
        Definition(
            "reduce_scatter",
            "every rank has a tensor of as many blocks as ranks; afterwards rank r has the sum "
            "of everybody's block r",
            start=_own_in_all,
            end=lambda rank, size, root, chunks: {rank: everybody(size)},
            reduces=True,
            fixed_count=_per_rank,
        ),
        Definition(
            "gather",
            "rank r has block r; afterwards the root has all blocks",
            start=_own_block,
            end=_only_root(_every_block),
            rooted=True,
            fixed_count=_per_rank,
        ),
        Definition(
            "scatter",
            "the root has a block for every rank; afterwards rank r has block r",
            start=_only_root(_from_root),
            end=lambda rank, size, root, chunks: {rank: 1 << root},
            rooted=True,
            fixed_count=_per_rank,
        ),
        Definition(
            "all_to_all",
            "every rank has a block for every rank; afterwards rank r has everybody's block for "
            "r; the block from s to d is chunk s * size + d",
            start=lambda rank, size, root, chunks: {
                rank * size + to: 1 << rank for to in range(size)
            },
            end=lambda rank, size, root, chunks: {
                source * size + rank: 1 << source for source in range(size)
            },
            fixed_count=lambda size: size * size,
        ),
        Definition(
            "barrier",
            "nobody leaves before everybody has come: the one chunk is the set of those who have",
            start=_own_in_all,
            end=_sum_in_all,
            reduces=True,
            union=True,
            fixed_count=lambda size: 1,
        ),
    )
}


def definition_of(op: str) -> Definition:
    """The definition of `op`; a ValueError lists the collectives that exist."""
    try:
        return DEFINITIONS[op]
    except (KeyError, TypeError):
        raise ValueError(
            f"there is no collective {op!r}; choose one of {', '.join(DEFINITIONS)}"
        ) from None
