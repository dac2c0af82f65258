"""Simulated time: every rank has a clock, and a round moves it on.

The idea: a rank sends its messages of a round one after the other through its port; each takes
alpha + bytes * beta. The receiver's port takes them in one after the other as well, at the same
time as it sends (full duplex). A rank's round is over when it has sent everything, received
everything and combined what it reduces. Nobody waits for a common tick: a rank's next round begins
when its own last one is over.

    rank 0   |--- send to 1 ---|
    rank 1   |--- receive -----|-- combine --|--- send to 2 ---|
    rank 2                                   |--- receive -----|-- combine --|

A clock isn't only a number. It carries along what the time was spent on, on the critical path: of
two clocks the later one wins, with its whole history.
"""

from __future__ import annotations

from typing import NamedTuple

from teachdist.collectives.schedule import Reduce, Send


class Clock(NamedTuple):
    """Seconds since the start, and of these: latency, transfer, combining."""

    seconds: float
    latency: float
    transfer: float
    combining: float


START = Clock(0.0, 0.0, 0.0, 0.0)


class RoundOfRank(NamedTuple):
    """What matters of one rank's round for time: chunks per receiver in order, and reduced ones."""

    sends: tuple[tuple[int, int], ...]
    reduced: int


def summary(actions) -> RoundOfRank:
    """The messages of a round: all chunks for one peer are one message."""
    sends: dict[int, int] = {}
    reduced = 0
    for action in actions:
        kind = type(action)
        if kind is Send:
            sends[action[0]] = sends.get(action[0], 0) + 1
        elif kind is Reduce:
            reduced += 1
    return RoundOfRank(tuple(sends.items()), reduced)


class Clocks:
    """The clocks of all ranks under a topology, for chunks of `chunk_bytes` bytes each."""

    def __init__(self, size, topology, hosts, chunk_bytes):
        self.topology = topology
        self.hosts = hosts
        self.chunk_bytes = chunk_bytes
        self.now = [START] * size
        self.port_in = [START] * size  # when each rank's receiving side is free

    def latest(self) -> Clock:
        """The clock of the rank that is done last."""
        return max(self.now)

    def step(self, rounds) -> None:
        """One round: `rounds` is (rank, RoundOfRank) for every rank that does anything."""
        arriving: dict[int, list] = {}
        for rank, (sends, _) in rounds:
            clock = self.now[rank]
            for to, chunks in sends:
                latency, transfer = self._price(rank, to, chunks)
                arriving.setdefault(to, []).append((clock, latency, transfer))
                clock = _add(clock, latency, transfer)
            self.now[rank] = clock
        for rank, messages in arriving.items():
            messages.sort()
            free = self.port_in[rank]
            for departed, latency, transfer in messages:
                free = _add(max(free, departed), latency, transfer)
            self.port_in[rank] = free
            self.now[rank] = max(self.now[rank], free)
        for rank, (_, reduced) in rounds:
            if reduced:
                seconds = reduced * self.chunk_bytes * self.topology.gamma
                clock = self.now[rank]
                self.now[rank] = Clock(clock[0] + seconds, clock[1], clock[2], clock[3] + seconds)

    def _price(self, rank, to, chunks):
        topology = self.topology
        if self.hosts[rank] == self.hosts[to]:
            return topology.alpha, topology.beta * self.chunk_bytes * chunks
        return topology.alpha_between, topology.beta_between * self.chunk_bytes * chunks


def _add(clock, latency, transfer):
    return Clock(clock[0] + latency + transfer, clock[1] + latency, clock[2] + transfer, clock[3])
