"""From a generator to checked rounds: `Algorithm`.

The idea: an algorithm is a generator function over `Send`, `Recv` and `Reduce`. Called with a rank
and the number of ranks, it yields what that rank does, one round per yield. Everything else in the
project (the executor, the checker, the price, the picture) asks `Algorithm` for those rounds and
never calls the generator itself, so a slip of the pen (a rank that doesn't exist, a yield of
something else, a loop without end) is caught here, once, with round and rank in its message.

Rounds, ranks and chunks are all counted from 0.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from teachdist.collectives.checker.time_limit import Runaway, guarded
from teachdist.collectives.schedule import Action, Recv, Reduce, Send, definition_of

# What a generator may ask for by name besides rank and size.
OPTIONAL = ("root", "hosts")


class AlgorithmError(ValueError):
    """A generator broke a rule that one rank alone can break; says which, in which round."""

    def __init__(self, kind: str, rank: int, round_number: int, text: str, chunk=None):
        super().__init__(f"round {round_number}: rank {rank} {text}")
        self.kind = kind
        self.rank = rank
        self.round = round_number
        self.chunk = chunk


@dataclass(frozen=True)
class Algorithm:
    """One algorithm for one collective. Calling it is calling its generator.

    `chunks(size)` is the number of chunks among `size` ranks, `serves(size)` whether the algorithm
    works for that many, `rounds(rank, size, root, hosts)` what a rank does.
    """

    op: str
    name: str
    generator: Callable[..., Iterator]
    pieces: int | Callable[[int], int] = 1
    when: Callable[[int], bool] | None = None
    formula: str | None = None
    symmetry: str | Callable[[int], str | None] | None = None
    builtin: bool = False
    takes_root: bool = field(init=False)
    takes_hosts: bool = field(init=False)

    def __post_init__(self):
        definition_of(self.op)
        asked = _asks_for(self.generator, f"{self.op} algorithm {self.name!r}")
        object.__setattr__(self, "takes_root", "root" in asked)
        object.__setattr__(self, "takes_hosts", "hosts" in asked)

    def __call__(self, *args, **kwargs):
        """The bare generator: lets one algorithm be built from others with `yield from`."""
        return self.generator(*args, **kwargs)

    def __repr__(self):
        return f"<{self.op} algorithm {self.name!r}>"

    @property
    def doc(self) -> str:
        """The docstring of the generator."""
        return inspect.getdoc(self.generator) or ""

    def serves(self, size: int) -> bool:
        """Whether the algorithm works for `size` ranks."""
        return size >= 1 and (self.when is None or bool(self.when(size)))

    @property
    def served(self) -> str:
        """The sizes that it serves, in words."""
        if self.when is None:
            return "any number of ranks"
        return (inspect.getdoc(self.when) or "the sizes that its when= allows").rstrip(".")

    def chunks(self, size: int) -> int:
        """The number of chunks among `size` ranks; at least 1."""
        pieces = self.pieces(size) if callable(self.pieces) else self.pieces
        count = definition_of(self.op).chunk_count(size, pieces)
        if not isinstance(count, int) or count < 1:
            raise ValueError(
                f"{self.op} algorithm {self.name!r}: chunks= must give a whole number of at least "
                f"1, got {count!r} for {size} ranks"
            )
        return count

    def rounds(
        self, rank: int, size: int, root: int = 0, hosts: tuple[int, ...] | None = None
    ) -> list[tuple[Action, ...]]:
        """What `rank` of `size` ranks does: a tuple of actions for each round, checked.

        `hosts` gives for each rank the number of its host; None puts all on one host.
        Raises AlgorithmError (with round and rank) when the generator breaks a rule, and
        ValueError when the arguments make no sense.
        """
        return list(self.steps(rank, size, root, hosts))

    def steps(
        self,
        rank: int,
        size: int,
        root: int = 0,
        hosts: tuple[int, ...] | None = None,
        guard: bool = False,
    ) -> Iterator[tuple[Action, ...]]:
        """`rounds`, one at a time, so that a thousand ranks need the memory of one round each.

        With `guard` a generator that neither yields nor ends is stopped too (slower:
        `checker/time_limit.py`).
        """
        self.check(rank, size, root, hosts)
        wanted: dict = {}
        if self.takes_root:
            wanted["root"] = root
        if self.takes_hosts:
            wanted["hosts"] = (0,) * size if hosts is None else tuple(hosts)
        call = guarded if guard else _plainly
        try:
            produced = call(self.generator, rank, size, **wanted)
        except (Runaway, Exception) as error:  # noqa: BLE001  a learner's code raises anything
            raise _blamed(error, rank, 0) from _cause(error)
        if not isinstance(produced, Iterator):
            raise AlgorithmError(
                "stranger",
                rank,
                0,
                f"gets {_short(produced)} instead of rounds: the function must be a generator, "
                "that is contain `yield`",
            )
        chunks = self.chunks(size)
        limit = round_limit(size)
        advance = partial(guarded, next) if guard else next
        number = 0
        while True:
            try:
                given = advance(produced, _END)
            except (Runaway, Exception) as error:  # noqa: BLE001  a learner's code raises anything
                raise _blamed(error, rank, number) from _cause(error)
            if given is _END:
                return
            if number >= limit:
                raise AlgorithmError(
                    "endless",
                    rank,
                    number,
                    f"still goes on after {limit} rounds, far more than {size} rank"
                    f"{'s' * (size > 1)} can need; "
                    "does a loop never end?",
                )
            yield _checked(given, rank, size, chunks, number)
            number += 1

    def check(self, rank, size, root=0, hosts=None) -> None:
        """Raise a ValueError that says which of these arguments makes no sense."""
        where = f"{self.op} algorithm {self.name!r}"
        if size < 1:
            raise ValueError(f"{where}: the number of ranks must be at least 1, got {size}")
        if not self.serves(size):
            raise ValueError(
                f"{where} doesn't serve {size} ranks: it serves {self.served}; choose another one"
            )
        if not 0 <= rank < size:
            raise ValueError(f"{where}: rank must be in 0..{size - 1}, got {rank}")
        if not 0 <= root < size:
            raise ValueError(f"{where}: root must be in 0..{size - 1}, got {root}")
        if hosts is not None and len(hosts) != size:
            raise ValueError(
                f"{where}: hosts must name a host for each of {size} ranks, got {len(hosts)}"
            )


_END = object()


def _plainly(function, *args, **kwargs):
    return function(*args, **kwargs)


def _blamed(error, rank, number) -> AlgorithmError:
    """What the learner's code raised, as an AlgorithmError of that rank and round."""
    if isinstance(error, Runaway):
        text = f"neither yields nor ends within {error}; does a loop never end?"
        return AlgorithmError("endless", rank, number, text)
    return AlgorithmError("exception", rank, number, f"raises {type(error).__name__}: {error}")


def _cause(error):
    """The learner's own error is the cause; where a loop was stopped says nothing."""
    return None if isinstance(error, Runaway) else error


def round_limit(size: int) -> int:
    """The number of rounds after which a generator counts as one that never ends."""
    return 1000 + 16 * size


def _asks_for(generator, where) -> set[str]:
    if not callable(generator):
        raise TypeError(
            f"{where}: expected a generator function of (rank, size), got {_short(generator)}"
        )
    parameters = list(inspect.signature(generator).parameters.values())
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if len(positional) < 2:
        raise TypeError(f"{where}: the generator must take (rank, size), both by position")
    rest = [p for p in parameters if p not in positional[:2]]
    asked = {p.name for p in rest if p.name in OPTIONAL}
    for parameter in rest:
        needed = parameter.default is parameter.empty and parameter.kind not in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        )
        if needed and parameter.name not in OPTIONAL:
            raise TypeError(
                f"{where}: the generator asks for {parameter.name!r}; besides rank and size it can "
                f"only be given {' and '.join(OPTIONAL)}"
            )
    return asked


def _checked(given, rank, size, chunks, number) -> tuple[Action, ...]:
    """One yield as a tuple of actions that name ranks and chunks which exist."""
    if type(given) is not tuple:  # nearly always it is: the one test that a good round costs
        given = _as_tuple(given, rank, number)
    for action in given:
        kind = type(action)
        if kind is Send or kind is Recv or kind is Reduce:
            peer, chunk = action
            sound = type(peer) is int and type(chunk) is int
            if sound and 0 <= peer < size and peer != rank and 0 <= chunk < chunks:
                continue
        raise AlgorithmError(*_what_is_wrong(action, rank, size, chunks, number))
    return given


def _as_tuple(given, rank, number) -> tuple:
    """A round that is one action or a list of them, as the tuple that it stands for."""
    if isinstance(given, (Send, Recv, Reduce)):
        return (given,)
    if isinstance(given, (tuple, list)):
        return tuple(given)
    raise AlgorithmError(
        "stranger",
        rank,
        number,
        f"yields {_short(given)}; a round is Send, Recv, Reduce or a tuple of them "
        "(an empty tuple for a round of rest)",
    )


def _what_is_wrong(action, rank, size, chunks, number):
    """The arguments of the AlgorithmError for an action that is not sound."""
    chunk = None
    if type(action) not in (Send, Recv, Reduce):
        kind = "stranger"
        text = f"yields {_short(action)} among its actions; only Send, Recv and Reduce are known"
    elif not all(type(number) is int for number in action):
        kind = "stranger"
        text = f"yields {_short(action)}; rank and chunk must be whole numbers"
    elif action[0] == rank:
        kind = "rank"
        text = f"yields {action}, a message to itself; what it has, it has"
    elif not 0 <= action[0] < size:
        kind = "rank"
        text = f"yields {action}, but there are only ranks 0..{size - 1}"
    else:
        kind = "range"
        chunk = action.chunk
        text = f"yields {action}, but there are only chunks 0..{chunks - 1}; chunks= says how many"
    return kind, rank, number, text, chunk


def _short(value) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
