"""What does it cost? Predicted time at any number of ranks, beside the formula of the literature.

The idea: the rounds of an algorithm say who sends how many chunks to whom; a topology says what a
message costs; `clocks.py` puts the two together. So the price of an algorithm isn't a formula that
somebody derived for it, it follows from the algorithm itself, for any root, any number of ranks and
any placement on hosts. Where the literature has a formula, the tests hold the two against each
other.

    >>> cost("ring", "all_reduce", nbytes=2**20, ranks=4, topology="loopback")
    'ring' all_reduce of 1.0 MiB on 4 ranks (loopback): 1.43 ms = ...

What n is: the tensor for all_reduce, broadcast and reduce; all blocks together for all_gather,
gather and scatter; the input for reduce_scatter; one rank's whole input for all_to_all.

Thousands of ranks: algorithms with a symmetry (`symmetry.py`) need the rounds of one rank only (a
ring among 4096 ranks takes well under a second); trees are short anyway. What would need more than
MOST_ACTIONS actions is answered by the formula where there is one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from teachdist.collectives.algorithm import Algorithm
from teachdist.collectives.checker.prove import prove, resolve
from teachdist.collectives.model import symmetry
from teachdist.collectives.model.clocks import Clock, summary
from teachdist.collectives.model.formula import closed_form, pretty
from teachdist.collectives.model.shared_memory import clocks
from teachdist.collectives.model.topology import PRESETS, Topology, one_price
from teachdist.collectives.schedule import definition_of
from teachdist.words import in_bytes, in_seconds

MOST_ACTIONS = 1_000_000
MOST_PROVEN = 32  # ranks for which the words of a price say so if the algorithm is wrong
DEFAULT_TOPOLOGY = PRESETS["loopback"]


@dataclass(frozen=True)
class Cost:
    """Predicted seconds, and where they go on the critical path.

    `seconds` = `latency` + `transfer` + `combining`. `formula` is the closed formula's value in
    seconds (None where there is none; an upper bound where `formula_text` begins with "at most";
    formulas are for messages through ports, also where the ranks share memory).
    `how` tells whether `seconds` was "simulated" or comes from the "formula".
    """

    op: str
    name: str
    nbytes: int
    ranks: int
    topology: Topology
    seconds: float
    latency: float | None
    transfer: float | None
    combining: float | None
    formula: float | None
    formula_text: str | None
    how: str
    algorithm: Algorithm | None = field(default=None, repr=False, compare=False)

    def __float__(self):
        return self.seconds

    def __str__(self):
        text = (
            f"{self.name!r} {self.op} of {in_bytes(self.nbytes)} on {self.ranks} ranks "
            f"({self.topology.name}): {in_seconds(self.seconds)}"
        )
        if self.latency is not None:
            text += (
                f" = {in_seconds(self.latency)} latency + {in_seconds(self.transfer)} transfer + "
                f"{in_seconds(self.combining)} combining"
            )
        if self.formula_text is not None:
            some_share = len(set(self.topology.hosts(self.ranks))) < self.ranks
            ports = " without shared memory" if self.topology.shared and some_share else ""
            text += f"; formula{ports}: {self.formula_text} = {in_seconds(self.formula)}"
        if refuted := self._refuted():
            text += f". Not that it were of use: {refuted}"
        return text

    def _refuted(self):
        """The counter-example in words, if the priced algorithm is a wrong one of the reader's."""
        made = self.algorithm
        if made is None or made.builtin or self.ranks > MOST_PROVEN:
            return None
        verdict = prove(made, ranks=self.ranks, hosts=self.topology.hosts(self.ranks))
        return None if verdict else str(verdict)

    __repr__ = __str__


def cost(
    algorithm,
    op: str | None = None,
    nbytes: int = 1 << 20,
    ranks: int = 8,
    topology: Topology | str | None = None,
    *,
    root: int = 0,
    hosts: tuple[int, ...] | None = None,
    chunks=None,
) -> Cost:
    """Predict the time of an algorithm (a name, an Algorithm or a generator function).

    `nbytes` is what the head of this file says for each collective. `topology` is a Topology or
    the name of a preset; `hosts` places the ranks otherwise than the topology would.
    """
    made = resolve(algorithm, op, chunks)
    topology = as_topology(topology)
    layout = topology.hosts(ranks) if hosts is None else tuple(hosts)
    made.check(0, ranks, root, layout)
    if nbytes < 0:
        raise ValueError(f"nbytes: must be at least 0, got {nbytes}")
    formula = closed_form(made, nbytes, ranks, topology, layout)
    clock = _simulated(made, nbytes, ranks, topology, root, layout)
    if clock is None and formula is None:
        raise ValueError(
            f"{made.op} algorithm {made.name!r}: {ranks} ranks are more than {MOST_ACTIONS} "
            "actions, too many to simulate; give it a formula= or, if all ranks do the same, "
            'symmetry="shift"'
        )
    simulated = clock is not None
    parts: tuple = clock or (formula, None, None, None)
    seconds, latency, transfer, combining = parts
    return Cost(
        made.op,
        made.name,
        nbytes,
        ranks,
        topology,
        seconds,
        latency,
        transfer,
        combining,
        formula,
        pretty(made.formula) if made.formula else None,
        "simulated" if simulated else "formula",
        made,
    )


def as_topology(topology: Topology | str | None) -> Topology:
    """A Topology from itself, from the name of a preset, or the default."""
    if topology is None:
        return DEFAULT_TOPOLOGY
    return Topology.preset(topology) if isinstance(topology, str) else topology


def bytes_per_chunk(op: str, nbytes: int, ranks: int, chunks: int) -> float:
    """The size of a chunk when `nbytes` is what the head of this file says."""
    if op == "barrier":
        return 0.0
    return nbytes / (chunks if definition_of(op).fixed_count is None else ranks)


def _simulated(made: Algorithm, nbytes, ranks, topology, root, layout) -> Clock | None:
    """The clock of the rank that is done last; None if that would take too long."""
    chunk_bytes = bytes_per_chunk(made.op, nbytes, ranks, made.chunks(ranks))
    kind = symmetry.kind_of(made, ranks)
    if kind:
        price = one_price(topology, layout)
        if price:
            return symmetry.one_clock(made, ranks, price, topology.gamma, chunk_bytes)
        if symmetry.work(made, ranks, layout) > MOST_ACTIONS:
            return None
        return symmetry.all_clocks(made, ranks, kind, topology, layout, chunk_bytes)
    if _actions(made, ranks, root, layout) > MOST_ACTIONS:
        return None
    running = clocks(ranks, topology, layout, chunk_bytes)
    steps = [made.steps(rank, ranks, root, layout) for rank in range(ranks)]
    while True:
        rounds = [next(mine, None) for mine in steps]
        if all(actions is None for actions in rounds):
            return running.latest()
        running.step([(rank, summary(actions)) for rank, actions in enumerate(rounds) if actions])


def _actions(made, ranks, root, layout) -> int:
    """About how many actions and rounds all ranks take: the median of a few ranks, times all."""
    sample = sorted({0, 1 % ranks, ranks // 3, ranks // 2, ranks - 1})
    counts = sorted(
        sum(1 + len(actions) for actions in made.steps(rank, ranks, root, layout))
        for rank in sample
    )
    return counts[len(counts) // 2] * ranks
