"""Your own algorithms: proven first, then usable by name.

The idea: a wrong all-reduce doesn't crash, it trains a slightly wrong model. So what a reader
registers is proven for every number of ranks up to 16 that it claims to serve; if a case goes
wrong, registration is refused with that case. Beyond 16 the proof is made at first use, for the
number of ranks used (`ensure_proven`).
"""

from __future__ import annotations

from collections.abc import Callable

from teachdist.collectives.algorithm import Algorithm
from teachdist.collectives.catalog import add, catalog, make
from teachdist.collectives.checker.prove import EVERY_SMALL_SIZE, CounterExample, prove
from teachdist.collectives.schedule import definition_of


class Refused(ValueError):
    """An algorithm that isn't what it claims; `counter_example` says why."""

    def __init__(self, counter_example: CounterExample, advice: str = ""):
        super().__init__(f"{counter_example}{advice}")
        self.counter_example = counter_example


def algorithm(
    op: str,
    name: str | None = None,
    *,
    chunks: int | Callable[[int], int] | None = None,
    when: Callable[[int], bool] | None = None,
    formula: str | None = None,
):
    """Decorate a generator of (rank, size): prove it, then make it usable by its name.

    `chunks` is the number of pieces the data is cut into: a number, or a function of the number of
    ranks. `when(size)` says which numbers of ranks it serves; its docstring says so in words.
    Raises Refused, with the counter-example, when a case up to 16 ranks goes wrong.
    """
    if callable(op):
        raise TypeError('say what it is an algorithm for: @algorithm("all_reduce")')
    definition_of(op)

    def register(generator) -> Algorithm:
        made = make(op, generator, name, chunks, when, formula)
        verdict = prove(made, ranks=EVERY_SMALL_SIZE)
        if isinstance(verdict, CounterExample):
            raise Refused(verdict, _advice(made))
        add(made)
        _proven[made] = set(verdict.sizes)
        return made

    return register


def _advice(made: Algorithm) -> str:
    """What else to know: an older one of the same name, a smaller claim that would hold."""
    advice = ""
    if made.when is None and prove(made, ranks=(2, 4, 8, 16)):
        advice += (
            " It is right for 2, 4, 8 and 16 ranks: to claim only powers of two, add "
            "when=lambda size: size & (size - 1) == 0"
        )
    if made.name in catalog()[made.op]:
        advice += f" (The {made.name!r} that was registered before stays.)"
    return advice


# For each own algorithm the cases that are proven: sizes, and (size, hosts) for given hosts.
_proven: dict[Algorithm, set] = {}


def ensure_proven(made: Algorithm, size: int, hosts: tuple[int, ...] | None = None) -> None:
    """Prove an own algorithm for this many ranks unless that is done; raises Refused if wrong."""
    if made.builtin:
        return
    known = _proven.setdefault(made, set())
    case = (size, tuple(hosts)) if hosts is not None and made.takes_hosts else size
    if case in known:
        return
    verdict = prove(made, ranks=size, hosts=hosts)
    if isinstance(verdict, CounterExample):
        raise Refused(verdict)
    known.add(case)
