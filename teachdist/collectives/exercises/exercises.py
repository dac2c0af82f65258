"""Exercises that check themselves: write an algorithm, get a counter-example or a price.

The idea: the checker and the cost model that serve the catalogue serve the learner as well. An
answer is right when it is proven, and good when it is as fast as the algorithm that the task is
about. Not passing always says what to look at next: the round in which it breaks, or the time that
is missing.

    >>> task = exercise("ring")
    >>> print(task.task)
    >>> task.check(my_ring)
    not yet: refuted: 'my_ring' is no all_reduce: with 2 ranks, round 0: rank 0 waits for ...
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

from teachdist.collectives.algorithm import Algorithm
from teachdist.collectives.catalog import make
from teachdist.collectives.checker.prove import CounterExample, Proof, prove
from teachdist.collectives.exercises.results import record
from teachdist.collectives.exercises.tasks import TASKS, Task
from teachdist.collectives.model.choose import choose
from teachdist.collectives.model.cost import Cost, cost
from teachdist.words import in_bytes, in_seconds

# An answer may be this much slower than the target: rounding, no more.
TOLERANCE = 1.001


@dataclass(frozen=True)
class Verdict:
    """What became of an answer; truthy when the exercise is passed.

    `proof` is the Proof or the CounterExample, `yours` the price of the answer (None when it is
    wrong), `target` that of the algorithm asked for. `broken` says which rule of the task a right
    answer breaks (None for none).
    """

    exercise: str
    proof: Proof | CounterExample
    yours: Cost | None
    target: Cost
    best: str
    broken: str | None = None

    @property
    def passed(self) -> bool:
        """Right, by the rules of the task, and as fast as the algorithm that it is about."""
        if self.yours is None or self.broken is not None:
            return False
        return self.yours.seconds <= self.target.seconds * TOLERANCE

    def __bool__(self):
        return self.passed

    def __str__(self):
        if self.yours is None:
            return f"not yet: {self.proof}"
        if self.broken is not None:
            return f"right, but not what was asked: {self.broken}. {self.proof}."
        data = "" if self.target.op == "barrier" else f"{in_bytes(self.target.nbytes)} on "
        case = f"{data}{self.target.ranks} ranks ({self.target.topology.name})"
        prices = (
            f"yours takes {in_seconds(self.yours.seconds)} for {case}, the catalogue's "
            f"{self.target.name!r} {in_seconds(self.target.seconds)}; best known there: {self.best}"
        )
        if self.passed:
            return f"passed: {self.proof}. Predicted: {prices}."
        return f"right, but not yet what was asked, because it is slower: {prices}. {self.proof}."

    __repr__ = __str__


@dataclass(frozen=True)
class Exercise:
    """One exercise: `task` says what to do, `starter` is code to begin with, `check` judges."""

    definition: Task

    @property
    def name(self) -> str:
        """Its name, as in `exercise(name)`."""
        return self.definition.name

    @property
    def task(self) -> str:
        """What to do."""
        return self.definition.text

    @property
    def starter(self) -> str:
        """Code to begin with; it doesn't pass."""
        return self.definition.starter

    @property
    def hint(self) -> str:
        """One more thought, for when you are stuck."""
        return self.definition.hint

    @property
    def solution(self) -> str:
        """The name of the algorithm in the catalogue that solves it (for the operation `op`)."""
        return self.definition.target

    @property
    def op(self) -> str:
        """The collective to write."""
        return self.definition.op

    def __str__(self):
        return f"{self.name} ({self.op})\n\n{self.task}\n\n{self.starter}"

    __repr__ = __str__

    def check(self, generator, save: str | Path | None = None, learner: str | None = None):
        """Judge an answer: a Verdict, truthy when passed, with the reason in its text.

        `generator` is your generator function. With `save`, a file name, the result is recorded
        there as JSON (`learner` is the name to record, by default the file's); `report(folder)`
        sums up such files.
        """
        task = self.definition
        bare = generator.generator if isinstance(generator, Algorithm) else generator
        name = getattr(bare, "__name__", "answer")
        made = make(task.op, bare, name, task.chunks, task.when)
        proof = prove(made)
        yours = None
        if proof:
            yours = cost(made, None, task.nbytes, task.ranks, task.topology)
        target = cost(task.target, task.op, task.nbytes, task.ranks, task.topology)
        best = choose(task.op, task.nbytes, task.ranks, task.topology).why.split("; ")[0]
        broken = _broken(task, made) if proof else None
        verdict = Verdict(task.name, proof, yours, target, best, broken)
        if save is not None:
            record(save, verdict, learner)
        return verdict


def _broken(task: Task, made: Algorithm) -> str | None:
    """The first round that breaks the task's rule, in words."""
    if task.rule is None:
        return None
    for rank in range(task.ranks):
        for number, actions in enumerate(made.rounds(rank, task.ranks)):
            if fault := task.rule(rank, task.ranks, actions):
                return f"with {task.ranks} ranks, round {number}: rank {rank} {fault}"
    return None


def exercise(name: str) -> Exercise:
    """The exercise of this name; a ValueError lists the names."""
    if name not in TASKS:
        close = difflib.get_close_matches(str(name), TASKS, n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise ValueError(f"exercise: there is no {name!r}{hint}; there are {', '.join(TASKS)}")
    return Exercise(TASKS[name])


def exercises() -> tuple[str, ...]:
    """The names of all exercises, in the order in which to do them."""
    return tuple(TASKS)
