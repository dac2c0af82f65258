"""The catalogue: which algorithms exist for which collective, by name.

`@algorithm("all_reduce")` in a family's file puts a generator in here. Nothing is proven at import:
the tests prove every entry. (What a learner registers goes through `checker/own.py`, which proves
first.)
"""

from __future__ import annotations

import difflib
from collections.abc import Callable

from teachdist.collectives.algorithm import Algorithm
from teachdist.collectives.schedule import DEFINITIONS, definition_of

_ALGORITHMS: dict[str, dict[str, Algorithm]] = {op: {} for op in DEFINITIONS}


class _Choices:
    """Counts whatever may change the choice of an algorithm: a choice made before may be old."""

    changes = 0


choices = _Choices()


def algorithm(
    op: str,
    name: str | None = None,
    *,
    chunks: int | Callable[[int], int] | None = None,
    when: Callable[[int], bool] | None = None,
    formula: str | None = None,
    symmetry: str | Callable[[int], str | None] | None = None,
):
    """Decorate a generator of (rank, size): it becomes the catalogue's `name` for `op`.

    `chunks` is the number of pieces the data is cut into (a number, or a function of the number of
    ranks; 1 when not given; only for collectives that leave it open). `when` says which numbers of
    ranks it serves. `formula` and `symmetry` serve the price: see `model/cost.py`.
    """

    def register(generator) -> Algorithm:
        made = make(op, generator, name, chunks, when, formula, symmetry, builtin=True)
        return add(made)

    return register


def make(
    op, generator, name=None, chunks=None, when=None, formula=None, symmetry=None, builtin=False
) -> Algorithm:
    """An Algorithm that is in no catalogue."""
    if definition_of(op).fixed_count is not None and chunks is not None:
        raise ValueError(
            f"chunks: the number of chunks of {op} is fixed by its definition; leave it out"
        )
    named = name or getattr(generator, "__name__", "unnamed")
    pieces = 1 if chunks is None else chunks
    return Algorithm(op, named, generator, pieces, when, formula, symmetry, builtin)


def add(made: Algorithm) -> Algorithm:
    """Enter an Algorithm; one of the reader's own replaces an own one, never a built-in one."""
    present = _ALGORITHMS[made.op].get(made.name)
    if present is not None and present.builtin:
        raise ValueError(
            f"{made.op} already has an algorithm {made.name!r} in the catalogue; give yours "
            f'another name, as in @algorithm("{made.op}", "my_{made.name}")'
        )
    _ALGORITHMS[made.op][made.name] = made
    choices.changes += 1
    return made


def remove(op: str, name: str) -> None:
    """Take one of the reader's own algorithms out again; built-in ones stay."""
    if get(op, name).builtin:
        raise ValueError(f"{op} algorithm {name!r} belongs to the catalogue and stays")
    del _ALGORITHMS[op][name]
    choices.changes += 1


def get(op: str, name: str) -> Algorithm:
    """The algorithm `name` for `op`; a ValueError lists the names that exist."""
    definition_of(op)
    known = _ALGORITHMS[op]
    if name in known:
        return known[name]
    close = difflib.get_close_matches(str(name), known, n=1)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    raise ValueError(
        f"{op} has no algorithm {name!r}{hint}; there are {', '.join(known) or 'none'}"
    )


def find_op(name: str) -> str:
    """The one collective that has an algorithm of this name; a ValueError if not exactly one."""
    ops = [op for op, known in _ALGORITHMS.items() if name in known]
    if len(ops) == 1:
        return ops[0]
    if not ops:
        raise ValueError(f"no collective has an algorithm {name!r}; see catalog()")
    raise ValueError(f"{name!r} exists for {', '.join(ops)}; say which with op=")


def catalog() -> dict[str, tuple[str, ...]]:
    """The names of all algorithms, by collective."""
    return {op: tuple(known) for op, known in _ALGORITHMS.items()}
