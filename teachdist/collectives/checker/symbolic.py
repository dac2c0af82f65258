"""Executing all ranks without data: every chunk is the set of the ranks that are in it.

The idea: to know whether an algorithm adds up the right things, the things needn't be numbers. Let
a chunk's value be the set of contributors. Combining is union, and when the two sets overlap
somebody would be counted twice. All ranks advance together, one round at a time; sends take the
state before the round, receives write the state after it. Whatever goes wrong raises `Fault`, which
says in a sentence where and why.

Beside its contributors a value carries a fingerprint of the order in which they were combined,
since floating-point addition depends on it: (x0 + x1) + x2 and x0 + (x1 + x2) may differ in the
last bit. Equal fingerprints on all ranks mean equal bits on all ranks.

Cost: a few dictionary operations per chunk sent, and the sets are ints. A ring of 1024 ranks sends
two million chunks, so whatever is done for each of them is kept short, and the rarer cases (several
values for one chunk, a fault) are dealt with apart.
"""

from __future__ import annotations

import operator

from teachdist.collectives.algorithm import Algorithm, AlgorithmError
from teachdist.collectives.checker import faults
from teachdist.collectives.checker.faults import Fault
from teachdist.collectives.schedule import Recv, Reduce, Send, definition_of

# What a chunk holds: who is in it (bits), and a fingerprint of the order of combining. A plain
# tuple, because there are p * p of them and Python's collector soon lets plain tuples of ints be.
Value = tuple[int, int]
NOTHING: Value = (0, 0)

# What is under way in a round: (source, to, chunk) -> value.
Wire = dict[tuple[int, int, int], Value]

# What comes in for one rank: chunk, source, value, and Recv or Reduce.
Arrival = tuple[int, int, Value, type]


class Execution:
    """All ranks of one algorithm, symbolically.

    `step()` runs one round and answers with the actions of all ranks, or None when all are done;
    `held[rank]` is `{chunk: Value}` after it. `finish()` runs to the end and checks the end.
    """

    def __init__(self, algorithm: Algorithm, size: int, root: int = 0, hosts=None):
        algorithm.check(0, size, root, hosts)
        self.algorithm = algorithm
        self.definition = definition_of(algorithm.op)
        self.size, self.root, self.hosts = size, root, hosts
        self.chunks = algorithm.chunks(size)
        guard = not algorithm.builtin
        self._steps = [algorithm.steps(rank, size, root, hosts, guard) for rank in range(size)]
        self.held: list[dict[int, Value]] = []
        # All ranks share the ints that number their chunks: p * p of them would crowd the cache,
        # and each look into `held` would have to fetch another one from memory.
        numbers = list(range(self.chunks))
        for rank in range(size):
            start = self.definition.start(rank, size, root, self.chunks)
            # A rank's number begins the fingerprint, not its bit: Python takes the hash of an int
            # modulo 2**61 - 1, so 1 << 1 and 1 << 62 have the same.
            values = {bits: (bits, bits.bit_length()) for bits in set(start.values())}
            self.held.append({numbers[chunk]: values[bits] for chunk, bits in start.items()})
        self.rounds = 0  # done so far
        self.messages = 0  # all chunks for one peer in one round are one message
        self.actions: list[tuple] = []  # of the round that was begun last, by rank

    def step(self):
        """One round of all ranks; None when every generator has ended."""
        try:
            actions = [next(steps, None) for steps in self._steps]
        except AlgorithmError as error:
            raise Fault(error.kind, str(error), error.round, error.rank, error.chunk) from error
        if all(mine is None for mine in actions):
            return None
        self.actions = actions = [mine or () for mine in actions]
        wire = self._send(actions)
        self._receive(actions, wire)
        if wire:
            raise faults.unmatched(self, *next(iter(wire)))
        self.rounds += 1
        return actions

    def finish(self) -> None:
        """Run all remaining rounds and check that everybody ends with what the definition asks."""
        while self.step() is not None:
            pass
        self.check_end()

    def same_order(self) -> bool:
        """Whether ranks that end with the same chunk have combined it in the same order."""
        seen: dict[int, int] = {}
        for rank in range(self.size):
            for chunk in self._wanted(rank):
                _, order = self.held[rank][chunk]
                if seen.setdefault(chunk, order) != order:
                    return False
        return True

    def _wanted(self, rank):
        return self.definition.end(rank, self.size, self.root, self.chunks)

    def _send(self, actions) -> Wire:
        """What everybody sends in this round, as it is before the round."""
        wire: Wire = {}
        for rank, mine in enumerate(actions):
            held = self.held[rank]
            sent_by_others = len(wire)
            for action in mine:
                if type(action) is not Send:
                    continue
                to, chunk = action
                value = held.get(chunk)
                if value is None:
                    text = f"sends chunk {chunk}, which it doesn't have"
                    raise faults.fault(self, "unheld", rank, chunk, text)
                key = rank, to, chunk
                if key in wire:
                    text = f"sends chunk {chunk} to rank {to} twice"
                    raise faults.fault(self, "unmatched", rank, chunk, text)
                wire[key] = value
            sent = len(wire) - sent_by_others
            if sent > 1:
                sent = len({action.to for action in mine if type(action) is Send})
            self.messages += sent
        return wire

    def _receive(self, actions, wire: Wire) -> None:
        """Everybody takes off the wire all that it receives in this round, and then writes it."""
        for rank, mine in enumerate(actions):
            arrived: list[Arrival] = []
            for action in mine:
                kind = type(action)
                if kind is Send:
                    continue
                source, chunk = action
                value = wire.pop((source, rank, chunk), None)
                if value is None:
                    raise faults.deadlock(self, rank, source, chunk)
                arrived.append((chunk, source, value, kind))
            if len(arrived) > 1 and len({chunk for chunk, *_ in arrived}) < len(arrived):
                self._write_several(rank, arrived)
            else:
                self._write(rank, arrived)

    def _write(self, rank, arrived) -> None:
        """For each chunk one value came: it replaces what is there or is combined with it."""
        held = self.held[rank]
        for chunk, source, value, kind in arrived:
            contributors, order = value
            own, own_order = held.get(chunk, NOTHING)
            if kind is Recv:
                if own | contributors != contributors:
                    gone = own & ~contributors
                    raise faults.lost(self, rank, source, chunk, gone, contributors)
                held[chunk] = value
            elif own & contributors or not self.definition.reduces:
                held[chunk] = self._combine(rank, chunk, [(source, value)])
            else:  # the same as `_combine`, which is slower because it can take any number
                orders = (order, own_order) if source < rank else (own_order, order)
                held[chunk] = own | contributors, hash(orders)

    def _write_several(self, rank, arrived) -> None:
        """For some chunk more than one value came: all must be reduced, none may overwrite."""
        by_chunk: dict[int, list[Arrival]] = {}
        for arrival in arrived:
            by_chunk.setdefault(arrival[0], []).append(arrival)
        for chunk, together in by_chunk.items():
            if len(together) == 1:
                self._write(rank, together)
            elif all(kind is Reduce for *_, kind in together):
                operands = [(source, value) for _, source, value, _ in together]
                self.held[rank][chunk] = self._combine(rank, chunk, operands)
            else:
                text = (
                    f"gets chunk {chunk} more than once and one would overwrite the other; only "
                    "Reduce may come more than once"
                )
                raise faults.fault(self, "overwritten", rank, chunk, text)

    def _combine(self, rank, chunk, arriving) -> Value:
        """The receiver's own value and those that arrive, (source, value), in order of rank."""
        if not self.definition.reduces:
            text = f"reduces chunk {chunk}, but {self.definition.op} combines nothing; use Recv"
            raise faults.fault(self, "combine", rank, chunk, text)
        operands = [*arriving, (rank, self.held[rank][chunk])]
        operands.sort(key=_by_rank)
        (_, (contributors, order)), *rest = operands
        for _, (others, their_order) in rest:
            if contributors & others and not self.definition.union:
                raise faults.double(self, rank, chunk, operands)
            contributors |= others
            order = hash((order, their_order))
        return contributors, order

    def check_end(self) -> None:
        """Raise Fault unless every rank holds what the definition asks for."""
        for rank in range(self.size):
            for chunk, wanted in self._wanted(rank).items():
                value = self.held[rank].get(chunk)
                if value is None:
                    raise faults.missing(self, rank, chunk, f"has no chunk {chunk}")
                absent = wanted & ~value[0]
                if absent:
                    text = f"has chunk {chunk} without the contribution of {faults.ranks(absent)}"
                    raise faults.missing(self, rank, chunk, text)


_by_rank = operator.itemgetter(0)
