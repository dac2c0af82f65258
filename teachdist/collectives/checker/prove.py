"""Is it right? `prove` answers with a proof, or with the first thing that goes wrong, in words.

The idea: an algorithm's schedule depends only on the rank, the number of ranks, the root and the
hosts, never on the data. So executing all ranks once, symbolically (`symbolic.py`), is a proof for
that number of ranks and for every possible input: if all ends well no input can go wrong, and if
not, there is a round, a rank and a chunk to point at. (It proves the numbers of ranks that were
tried, no others.)

    >>> prove("ring", "all_reduce", ranks=4)
    proven: 'ring' is an all_reduce for 4 ranks (6 rounds, 24 messages) ...

The kinds of counter-example: "double" (a contribution counted twice), "missing" (one that never
arrives), "overwritten" (one that is lost), "unheld" (sending what isn't there), "deadlock" (waiting
for what nobody sends), "unmatched" (sending what nobody receives), "range" (a chunk that doesn't
exist), "rank" (a rank that doesn't exist, or oneself), "combine" (a Reduce where nothing is
summed), "endless", "stranger" (a yield of something else), "exception".
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field

from teachdist.collectives.algorithm import Algorithm
from teachdist.collectives.catalog import find_op, get, make
from teachdist.collectives.checker.faults import Fault, counted
from teachdist.collectives.checker.symbolic import Execution
from teachdist.collectives.schedule import definition_of

EVERY_SMALL_SIZE = range(1, 17)


@dataclass(frozen=True)
class Proof:
    """The algorithm is right for `sizes`. Truthy; as text it says what was shown.

    `rounds` and `messages` are given for each number of ranks (the most over roots and hosts).
    `same_bits` tells whether all ranks combine in the same order, so that floating-point results
    are equal to the last bit (None where nothing is summed). `algorithm` is what was proven.
    """

    op: str
    name: str
    sizes: tuple[int, ...]
    rounds: dict[int, int] = field(repr=False)
    messages: dict[int, int] = field(repr=False)
    same_bits: bool | None = None
    algorithm: Algorithm | None = field(default=None, repr=False, compare=False)

    def __bool__(self):
        return True

    def __str__(self):
        last = self.sizes[-1]
        counts = f"{counted(self.rounds[last], 'round')}, {counted(self.messages[last], 'message')}"
        if len(self.sizes) > 1:
            counts = f"at {last} ranks: {counts}"
        text = f"proven: {self.name!r} is {_article(self.op)} for {_sizes(self.sizes)} ({counts})"
        if definition_of(self.op).rooted:
            text += ", whichever rank is the root"
        if self.same_bits is True:
            text += "; all ranks end with the same bits"
        elif self.same_bits is False:
            text += (
                "; but ranks add in different orders, so floating-point results may differ in "
                "the last bits from rank to rank"
            )
        return text

    __repr__ = __str__


@dataclass(frozen=True)
class CounterExample:
    """The algorithm is wrong. Falsy; `sentence` says in words what goes wrong first.

    `size`, `root` and `hosts` are the case; `kind`, `round`, `rank` and `chunk` the place (None
    where it has none). Rounds, ranks and chunks count from 0.
    """

    op: str
    name: str
    size: int
    root: int
    hosts: tuple[int, ...] | None
    kind: str
    sentence: str
    round: int | None = None
    rank: int | None = None
    chunk: int | None = None
    algorithm: Algorithm | None = field(default=None, repr=False, compare=False)

    def __bool__(self):
        return False

    def __str__(self):
        case = f"with {self.size} rank{'s' if self.size > 1 else ''}"
        if definition_of(self.op).rooted:
            case += f", root {self.root}"
        if self.hosts is not None:
            case += f", hosts {self.hosts}"
        return f"refuted: {self.name!r} is no {self.op}: {case}, {self.sentence}"

    __repr__ = __str__


def prove(
    algorithm: str | Algorithm | Callable,
    op: str | None = None,
    ranks: int | Iterable[int] = EVERY_SMALL_SIZE,
    *,
    chunks: int | Callable[[int], int] | None = None,
    roots: Iterable[int] | Callable[[int], Iterable[int]] | None = None,
    hosts=None,
) -> Proof | CounterExample:
    """Prove that an algorithm does what `op` means, or find the first case in which it doesn't.

    `algorithm` is a name in the catalogue, an Algorithm or a bare generator function (then `op`
    must be given, and `chunks` where it uses more than one). `ranks` is one number of ranks or
    several; of several, those that `when=` excludes are skipped and 1 is tried last. Every root is
    tried unless `roots` says which. An algorithm that asks for `hosts` is tried with the layouts of
    `layouts(size)` unless `hosts` gives one (a host number per rank), several, or a function of the
    size.
    """
    made = resolve(algorithm, op, chunks)
    sizes = (ranks,) if isinstance(ranks, int) else tuple(s for s in ranks if made.serves(s))
    if not sizes:
        raise ValueError(f"ranks: {made.op} algorithm {made.name!r} serves {made.served} only")
    rounds: dict[int, int] = {}
    messages: dict[int, int] = {}
    same = True
    for size in sorted(sizes, key=lambda size: size == 1):  # a fault of one rank teaches least
        for layout in _layouts(made, size, hosts):
            for root in _roots(made, size, roots):
                try:
                    done = _executed(made, size, root, layout)
                except Fault as fault:
                    return _counter_example(made, size, root, layout, fault)
                rounds[size] = max(done[0], rounds.get(size, 0))
                messages[size] = max(done[1], messages.get(size, 0))
                same = same and done[2]
    definition = definition_of(made.op)
    sums = definition.reduces and not definition.union
    return Proof(made.op, made.name, sizes, rounds, messages, same if sums else None, made)


@contextmanager
def _collector_resting():
    """Without Python's search for reference cycles, which is left as it was found.

    An execution holds p * p values and makes no cycles. To walk through all those values again and
    again, for nothing, is a good part of the time that a thousand ranks take.
    """
    found_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if found_on:
            gc.enable()


@_collector_resting()
def _executed(made, size, root, layout) -> tuple[int, int, bool]:
    """Rounds, messages and whether all add in the same order; a Fault if it isn't right.

    A function of its own, so that all values are gone again when the collector comes back.
    """
    run = Execution(made, size, root, layout)
    run.finish()
    return run.rounds, run.messages, run.same_order()


def resolve(algorithm, op=None, chunks=None) -> Algorithm:
    """The Algorithm that a name, an Algorithm or a bare generator function stands for."""
    if isinstance(algorithm, Algorithm):
        if op is not None and op != algorithm.op:
            return make(op, algorithm.generator, algorithm.name, chunks, algorithm.when)
        return algorithm
    if isinstance(algorithm, str):
        return get(op or find_op(algorithm), algorithm)
    if op is None:
        raise ValueError(
            "say which collective the function is meant to be, for example "
            'prove(function, op="all_reduce")'
        )
    return make(op, algorithm, chunks=chunks)


def layouts(size: int) -> tuple[tuple[int, ...], ...]:
    """Ways to place `size` ranks on hosts: together, in blocks, dealt out, uneven, apart."""
    ranks = range(size)
    candidates = [
        (0,) * size,
        tuple(rank // max(1, size // 2) for rank in ranks),
        tuple(rank // 4 for rank in ranks),
        tuple(rank % 2 for rank in ranks),
        tuple(int(rank > 0) for rank in ranks),
        tuple(ranks),
    ]
    return tuple(dict.fromkeys(candidates))


def _layouts(made, size, hosts):
    if not made.takes_hosts:
        return (None,)
    if hosts is None:
        return layouts(size)
    if callable(hosts):
        hosts = hosts(size)
    hosts = tuple(hosts)
    if hosts and isinstance(hosts[0], int):
        return (hosts,)
    return tuple(tuple(layout) for layout in hosts if len(layout) == size)


def _roots(made, size, roots):
    if not definition_of(made.op).rooted:
        return (0,)
    if roots is None:
        return range(size)
    return tuple(roots(size) if callable(roots) else roots)


def _counter_example(made, size, root, layout, fault):
    return CounterExample(
        made.op,
        made.name,
        size,
        root,
        layout,
        fault.kind,
        fault.sentence,
        fault.round,
        fault.rank,
        fault.chunk,
        made,
    )


def _article(op):
    return f"{'an' if op[0] in 'aeiou' else 'a'} {op}"


def _sizes(sizes):
    if len(sizes) == 1:
        return f"{sizes[0]} rank{'s' if sizes[0] > 1 else ''}"
    if len(sizes) > 2 and list(sizes) == list(range(sizes[0], sizes[-1] + 1)):
        return f"{sizes[0]} to {sizes[-1]} ranks"
    return f"{', '.join(map(str, sizes[:-1]))} and {sizes[-1]} ranks"
