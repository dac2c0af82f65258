"""Clocks of ranks that share memory: a chunk is written once, whoever reads it.

The idea: on one host a "message" is a place in memory. A rank that sends writes its chunks there,
each once, and then says "done" once; that is one alpha, to however many ranks it sends. The readers
read at the same time, each for itself. What a reader combines it doesn't copy first: it adds up
from where the numbers lie.

    direct all_reduce, 4 ranks, n bytes

    through ports     3 alpha + 3 n beta + 3 n gamma
    shared memory       alpha +   n beta + 3 n gamma        write mine, add up the others'

There is no port that works while the rank does something else: writing, copying and combining are
all done by the rank's own processor, one after the other. But a reader may follow a writer piece by
piece. So a rank's round takes alpha, beta for each byte written, beta for each byte copied and
gamma for each byte combined, and ends no sooner than the writing of those that it reads from.

Messages between hosts go through ports as in `clocks.py`.
"""

from __future__ import annotations

from teachdist.collectives.model.clocks import Clocks, RoundOfRank, combined, count, later
from teachdist.collectives.model.topology import Topology


def clocks(size: int, topology: Topology, hosts: tuple[int, ...], chunk_bytes: float) -> Clocks:
    """Clocks that fit the topology, all at zero."""
    kind = SharedClocks if topology.shared else Clocks
    return kind(size, topology, hosts, chunk_bytes)


class SharedClocks(Clocks):
    """Clocks where ranks of one host read what the others have written."""

    def step(self, rounds) -> None:
        """One round: write, say so, read."""
        begun = list(self.now)
        self._write(rounds)
        written = list(self.now)
        self._read(rounds, begun, written)
        outside = [(rank, self._outside(rank, mine)) for rank, mine in rounds]
        self.receive(self.send(outside))
        self.combine(outside)

    def _write(self, rounds):
        for rank, mine in rounds:
            readers = self._near(rank, mine.sends)
            if readers:
                nbytes = written_chunks(readers) * self.chunk_bytes
                self.now[rank] = later(
                    self.now[rank], self.topology.alpha, nbytes * self.topology.beta
                )

    def _read(self, rounds, begun, written):
        topology, size = self.topology, self.chunk_bytes
        for rank, mine in rounds:
            copies, reduced = self._near(rank, mine.copies), self._near(rank, mine.reduced)
            sources = [peer for peer, _ in (*copies, *reduced)]
            if not sources:
                continue
            mine_done = self.now[rank]
            if not self._near(rank, mine.sends):  # then the round's alpha isn't paid yet
                mine_done = later(mine_done, topology.alpha, 0.0)
            there = later(max(begun[peer] for peer in sources), topology.alpha, 0.0)
            copying = count(copies) * size * topology.beta
            adding = count(reduced) * size * topology.gamma
            done = combined(later(max(mine_done, there), 0.0, copying), adding)
            self.now[rank] = max([done, *(written[peer] for peer in sources)])

    def _near(self, rank, by_peer):
        return tuple(entry for entry in by_peer if self.together(rank, entry[0]))

    def _outside(self, rank, mine):
        """The round without what stays on this host."""
        return RoundOfRank(
            *(tuple(entry for entry in part if not self.together(rank, entry[0])) for part in mine)
        )


def written_chunks(sends) -> int:
    """How many chunks these messages, (receiver, chunks), have between them."""
    return len(set().union(*(chunks for _, chunks in sends)))
