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

import contextlib
import operator

from teachdist.collectives.rounds import Algorithm, AlgorithmError
from teachdist.collectives.schedule import Recv, Reduce, Send, definition_of, members

TOGETHER = (
    "a Send and its Recv or Reduce must be in one round: what one rank does at once, one yield"
)

# What a chunk holds: who is in it (bits), and a fingerprint of the order of combining. A plain
# tuple, because there are p * p of them and Python's collector soon lets plain tuples of ints be.
Value = tuple[int, int]
NOTHING: Value = (0, 0)

# What is under way in a round: (source, to, chunk) -> value.
Wire = dict[tuple[int, int, int], Value]

# What comes in for one rank: chunk, source, value, and Recv or Reduce.
Arrival = tuple[int, int, Value, type]


class Fault(Exception):
    """A rule was broken: what kind, where, and the sentence that says so."""

    def __init__(self, kind, sentence, round_number=None, rank=None, chunk=None):
        super().__init__(sentence)
        self.kind = kind
        self.sentence = sentence
        self.round = round_number
        self.rank = rank
        self.chunk = chunk


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
            self._fault_unmatched(*next(iter(wire)))
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
                    self._fault("unheld", rank, chunk, text)
                key = rank, to, chunk
                if key in wire:
                    self._fault("unmatched", rank, chunk, f"sends chunk {chunk} to rank {to} twice")
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
                    self._fault_deadlock(rank, source, chunk)
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
                    self._fault_lost(rank, source, chunk, own & ~contributors, contributors)
                held[chunk] = value
            elif own & contributors or not self.definition.reduces:
                held[chunk] = self._combine(rank, chunk, [(source, value)])
            else:  # the same as `_combine`, which is slower because it can take any number
                orders = (order, own_order) if source < rank else (own_order, order)
                held[chunk] = own | contributors, hash(orders)

    def _write_several(self, rank, arrived) -> None:
        """As `_write`, where for some chunk more than one value came."""
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
                self._fault(
                    "overwritten",
                    rank,
                    chunk,
                    f"gets chunk {chunk} more than once and one would overwrite the other; only "
                    "Reduce may come more than once",
                )

    def _combine(self, rank, chunk, arriving) -> Value:
        """The receiver's own value and those that arrive, (source, value), in order of rank."""
        if not self.definition.reduces:
            self._fault(
                "combine",
                rank,
                chunk,
                f"reduces chunk {chunk}, but {self.definition.op} combines nothing; use Recv",
            )
        operands = [*arriving, (rank, self.held[rank][chunk])]
        operands.sort(key=_by_rank)
        (_, (contributors, order)), *rest = operands
        for _, (others, their_order) in rest:
            if contributors & others and not self.definition.union:
                self._fault_double(rank, chunk, operands)
            contributors |= others
            order = hash((order, their_order))
        return contributors, order

    def check_end(self) -> None:
        """Raise Fault unless every rank holds what the definition asks for."""
        for rank in range(self.size):
            for chunk, wanted in self._wanted(rank).items():
                value = self.held[rank].get(chunk)
                if value is None:
                    raise Fault(
                        "missing",
                        self._at_end(f"rank {rank} has no chunk {chunk}"),
                        None,
                        rank,
                        chunk,
                    )
                missing = wanted & ~value[0]
                if missing:
                    text = f"rank {rank} has chunk {chunk} without the contribution of"
                    raise Fault(
                        "missing", self._at_end(f"{text} {ranks(missing)}"), None, rank, chunk
                    )

    def _at_end(self, text):
        return f"at the end, after {counted(self.rounds, 'round')}: {text}"

    def _fault(self, kind, rank, chunk, text):
        raise Fault(kind, f"round {self.rounds}: rank {rank} {text}", self.rounds, rank, chunk)

    def _fault_lost(self, rank, source, chunk, lost, coming):
        self._fault(
            "overwritten",
            rank,
            chunk,
            f"receives chunk {chunk} from rank {source} over what it has and loses the "
            f"contribution of {ranks(lost)}: what comes holds only {ranks(coming)}. Should "
            "it have been complete by then? Or, to keep both, use Reduce",
        )

    def _fault_double(self, rank, chunk, operands):
        """Name the first sender, in order of rank, whose data overlaps what is there already."""
        there, _ = dict(operands)[rank]
        for source, (contributors, _) in operands:
            twice = there & contributors
            if source == rank:
                continue
            if twice:
                self._fault(
                    "double",
                    rank,
                    chunk,
                    f"adds chunk {chunk} from rank {source}, and so counts {ranks(twice)} twice",
                )
            there |= contributors

    def _fault_deadlock(self, rank, source, chunk):
        rounds = self._rounds_of(source)
        when = [n for n, mine in enumerate(rounds) if Send(rank, chunk) in mine]
        now = rounds[self.rounds] if self.rounds < len(rounds) else None
        others = [a.chunk for a in now or () if type(a) is Send and a.to == rank]
        if when:
            reason = f"rank {source} sends that in round {when[0]}; {TOGETHER}"
        elif others:
            reason = f"rank {source} sends it chunk {', '.join(map(str, others))} instead"
        elif now is None:
            reason = f"rank {source} is done after {counted(len(rounds), 'round')}"
        else:
            reason = f"rank {source} never sends it that"
        self._fault(
            "deadlock",
            rank,
            chunk,
            f"waits for chunk {chunk} from rank {source} for ever: {reason}",
        )

    def _fault_unmatched(self, rank, to, chunk):
        rounds = self._rounds_of(to)
        when = [
            n
            for n, mine in enumerate(rounds)
            if any(type(a) is not Send and tuple(a) == (rank, chunk) for a in mine)
        ]
        reason = f"receives that in round {when[0]}; {TOGETHER}" if when else "never receives it"
        self._fault("unmatched", rank, chunk, f"sends chunk {chunk} to rank {to}, which {reason}")

    def _rounds_of(self, rank) -> list:
        """All rounds of one rank as far as they are sound, to say what it does instead."""
        rounds: list = []
        guard = not self.algorithm.builtin
        with contextlib.suppress(AlgorithmError):
            rounds.extend(self.algorithm.steps(rank, self.size, self.root, self.hosts, guard))
        return rounds


_by_rank = operator.itemgetter(0)


def counted(number: int, noun: str) -> str:
    """A number and what it counts: "1 round", "2 rounds"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def ranks(contributors: int) -> str:
    """A set of ranks in words: "rank 3", "ranks 0, 1 and 5"; long ones are cut short."""
    names = [str(rank) for rank in members(contributors)]
    if len(names) == 1:
        return f"rank {names[0]}"
    if len(names) > 6:
        return f"{len(names)} ranks ({', '.join(names[:4])}, ...)"
    return f"ranks {', '.join(names[:-1])} and {names[-1]}"
