"""Simulated time: every rank has a clock, and a round moves it on.

The idea: a rank sends its messages of a round one after the other through its port; each takes
alpha + bytes * beta. The receiver's port takes them in one after the other as well, at the same
time as it sends (full duplex). A rank's round is over when it has sent everything, received
everything and combined what it reduces. Nobody waits for a common tick: a rank's next round begins
when its own last one is over.

    rank 0   |--- send to 1 ---|
    rank 1   |--- receive -----|-- combine --|--- send to 2 ---|
    rank 2                                   |--- receive -----|-- combine --|

How memory that the ranks of a host share changes this is told in `shared_memory.py`.

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
    """What matters of one rank's round for time.

    `sends`: for each receiver, in order, the chunks; they are numbered anew from 0 in each round,
    in order of first use, so that rounds that cost the same are equal. `copies`: for each source
    how many chunks are received as they are. `reduced`: how many chunks are combined, by source.
    """

    sends: tuple[tuple[int, tuple[int, ...]], ...]
    copies: tuple[tuple[int, int], ...]
    reduced: tuple[tuple[int, int], ...]


def summary(actions) -> RoundOfRank:
    """The messages of a round: all chunks for one peer are one message."""
    sends: dict[int, list[int]] = {}
    copies: dict[int, int] = {}
    reduced: dict[int, int] = {}
    numbers: dict[int, int] = {}
    for action in actions:
        kind, peer = type(action), action[0]
        if kind is Send:
            number = numbers.setdefault(action[1], len(numbers))
            sends.setdefault(peer, []).append(number)
        else:
            into = reduced if kind is Reduce else copies
            into[peer] = into.get(peer, 0) + 1
    return RoundOfRank(
        tuple((peer, tuple(chunks)) for peer, chunks in sends.items()),
        tuple(copies.items()),
        tuple(reduced.items()),
    )


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
        self.receive(self.send(rounds))
        self.combine(rounds)

    def send(self, rounds) -> dict[int, list]:
        """Everybody's messages through its port: {receiver: [(departure, latency, transfer)]}."""
        arriving: dict[int, list] = {}
        for rank, mine in rounds:
            clock = self.now[rank]
            for to, chunks in mine.sends:
                latency, transfer = self.price(rank, to, len(chunks))
                arriving.setdefault(to, []).append((clock, latency, transfer))
                clock = later(clock, latency, transfer)
            self.now[rank] = clock
        return arriving

    def receive(self, arriving) -> None:
        """What arrives at a rank goes through its port, one after the other."""
        for rank, messages in arriving.items():
            messages.sort()
            free = self.port_in[rank]
            for departed, latency, transfer in messages:
                free = later(max(free, departed), latency, transfer)
            self.port_in[rank] = free
            self.now[rank] = max(self.now[rank], free)

    def combine(self, rounds) -> None:
        """Add up what has come."""
        for rank, mine in rounds:
            if mine.reduced:
                seconds = count(mine.reduced) * self.chunk_bytes * self.topology.gamma
                self.now[rank] = combined(self.now[rank], seconds)

    def price(self, rank, to, chunks):
        """Latency and transfer of one message."""
        topology = self.topology
        if self.together(rank, to):
            return topology.alpha, topology.beta * self.chunk_bytes * chunks
        return topology.alpha_between, topology.beta_between * self.chunk_bytes * chunks

    def together(self, rank, other) -> bool:
        """Whether two ranks share a host."""
        return self.hosts[rank] == self.hosts[other]


def later(clock, latency, transfer):
    """The clock after a message."""
    return Clock(clock[0] + latency + transfer, clock[1] + latency, clock[2] + transfer, clock[3])


def combined(clock, seconds):
    """The clock after combining for `seconds`."""
    return Clock(clock[0] + seconds, clock[1], clock[2], clock[3] + seconds)


def count(by_peer) -> int:
    """How many chunks ((peer, number), ...) are together."""
    return sum(number for _, number in by_peer)
