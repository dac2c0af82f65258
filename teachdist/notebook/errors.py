"""Errors of ranks, told so that the cause comes first.

When one rank fails, the others usually fail too, because they waited for it. The one that failed
by itself is the culprit: its traceback is what the reader needs. The others get a line each.
"""

import re
from dataclasses import dataclass

# Errors that say "I was released because another rank failed": never the culprit.
_CONSEQUENCES = ("RankError", "Released", "PeerFailed", "KeyboardInterrupt")
_OUR_FRAMES = re.compile(r"teachdist[/\\]notebook[/\\]rank\.py")


class ClusterError(RuntimeError):
    """The ranks could not be started, or cannot be used. The text is one line."""


@dataclass
class Failure:
    """How one rank failed."""

    rank: int
    name: str  # of the exception's class
    text: str
    traceback: list  # lines, coloured
    when: object = None  # a datetime, by the rank's own clock

    @classmethod
    def of(cls, rank, error):
        """From what ipyparallel delivers."""
        name = getattr(error, "ename", type(error).__name__)
        text = str(getattr(error, "evalue", error))
        if name == "EngineError" and "died while running" in text:
            name, text = "Died", "its process ended (killed, or out of memory)"
        traceback = getattr(error, "traceback", None) or []
        if isinstance(traceback, str):
            traceback = traceback.splitlines()
        return cls(rank, name, text, traceback)

    @property
    def died(self):
        """Did the process itself end?"""
        return self.name == "Died"

    @property
    def line(self):
        """One line."""
        first = self.text.strip().splitlines()[0] if self.text.strip() else ""
        return (
            f"rank {self.rank}: {self.name}: {first}" if first else f"rank {self.rank}: {self.name}"
        )

    def culpability(self):
        """Sorts culprits before consequences, and earlier before later."""
        consequence = self.name in _CONSEQUENCES
        return (not self.died, consequence, str(self.when or ""), self.rank)


class RanksError(RuntimeError):
    """Ranks failed. ``failures`` is ordered: the culprit first.

    Attributes:
        failures: list of ``Failure``.
        stuck: ranks that do not answer, not even to an interrupt.
    """

    def __init__(self, failures, stuck=()):
        self.failures = sorted(failures, key=Failure.culpability)
        self.stuck = list(stuck)
        super().__init__("\n".join(self.lines()))

    def lines(self):
        """A line per rank that failed, the culprit's first, and what to do next."""
        lines = [failure.line for failure in self.failures]
        lines += [f"rank {rank}: does not answer, not even to an interrupt" for rank in self.stuck]
        if self.stuck or any(failure.died for failure in self.failures):
            lines.append("next: %ranks restart, or Cluster.restart()")
        return lines

    def _render_traceback_(self):
        """What IPython shows: the culprit's own traceback, then one line for each other rank."""
        culprit = self.failures[0] if self.failures else None
        shown = []
        if culprit is not None and culprit.traceback:
            shown += [f"rank {culprit.rank} failed first:", *culprit.traceback, ""]
            return shown + self.lines()[1:]
        return shown + self.lines()
