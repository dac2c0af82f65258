"""Errors of ranks, told so that the cause comes first.

When one rank fails, the others usually fail too, because they waited for it. The one that failed
by itself is the culprit: its traceback is what the reader needs. The others get a line each.
"""

import re
from dataclasses import dataclass

from teachdist.notebook.cells.outputs import MOST, cut, group, plain
from teachdist.words import ranks_label

# The backend released this rank because another one failed, or we have interrupted it.
_CONSEQUENCES = ("Released", "KeyboardInterrupt")
_STOPPED = "KeyboardInterrupt: "
_RELEASED_FROM = re.compile(r"\(rank \d+ was (released from .+?)\.?\)\s*$")
_WAS_IN = re.compile(r"; rank \d+ (was in [^\n]+?)\.?$", re.MULTILINE)
_LONGEST = 1_000  # characters of an error's first line
_REMEDY = "all of it: print(sys.last_value.__notes__[0])"
_FILE_OF_CELL = re.compile(r"\(\d+\.py, (line \d+)\)")


class ClusterError(RuntimeError):
    """The ranks could not be started, or cannot be used. The text is one line."""


@dataclass
class Failure:
    """How one rank failed."""

    rank: int
    name: str  # of the exception's class
    text: str
    traceback: list  # lines, coloured
    when: str = ""  # date and time, by the rank's own clock

    @classmethod
    def of(cls, rank, error, when=""):
        """From what ipyparallel delivers."""
        name = getattr(error, "ename", type(error).__name__)
        text = str(getattr(error, "evalue", error))
        if name == "EngineError" and "died while running" in text:
            return cls(rank, "Died", "its process ended (killed, or out of memory)", [], when)
        traceback = getattr(error, "traceback", None) or []
        if isinstance(traceback, str):
            traceback = traceback.splitlines()
        return cls(rank, name, text, traceback, when)

    @property
    def died(self):
        """Whether the process itself ended."""
        return self.name == "Died"

    @property
    def what(self):
        """One line, without the rank."""
        released = _RELEASED_FROM.search(self.text) if self.name == "Released" else None
        if released:
            return released[1]
        first = self.text.strip().partition("\n")[0]
        if len(first) > _LONGEST:
            first = f"{first[:_LONGEST]} [... {len(first) - _LONGEST:,} characters more]"
        first = _FILE_OF_CELL.sub(r"(\1)", first)
        return f"{self.name}: {first}" if first else self.name

    @property
    def consequence(self):
        """Whether this rank failed only because another one did."""
        return self.name in _CONSEQUENCES


class RanksError(RuntimeError):
    """Ranks failed.

    Attributes:
        failures: list of ``Failure``: who failed by itself, the earliest first, then the others.
        stuck: ranks that do not answer, not even to an interrupt.
        hint: a line shown under the error, or "".
    """

    def __init__(self, failures, stuck=()):
        self.failures = sorted(failures, key=_blame)
        if any(failure.died for failure in failures):  # then nobody else is to blame
            self._causes = [failure for failure in self.failures if failure.died]
        else:
            self._causes = [failure for failure in self.failures if not failure.consequence]
        self.stuck = list(stuck)
        self.hint = ""  # what the reader may have meant, a line
        super().__init__("\n".join(self.lines()))
        first = self._first()
        if first is not None and first.traceback:  # for scripts, where nothing else shows it
            lines = "\n".join(first.traceback)
            self.add_note(f"On rank {first.rank}:\n{plain(lines)}")

    def lines(self):
        """A line per failure, causes before consequences and by rank, then what to do next."""
        lines = []
        others = [failure for failure in self.failures if failure not in self._causes]
        died = any(failure.died for failure in self._causes)
        for some in (self._causes, others):
            by_rank = {one.rank: _was_in(one) if died else one.what for one in some}
            lines += [f"{ranks_label(ranks)}: {what}" for ranks, what in group(by_rank)]
        if self.stuck:
            lines.append(f"{ranks_label(self.stuck)}: no answer, not even to an interrupt")
        if self.stuck or any(failure.died for failure in self.failures):
            lines.append("next: %ranks restart, or Cluster.restart()")
        return lines

    def _first(self):
        """Who failed first; of several that failed alike the lowest rank."""
        first = self.failures[0] if self.failures else None
        alike = [one for one in self._causes if first is not None and one.what == first.what]
        return min(alike, key=lambda one: one.rank, default=first)

    def _render_traceback_(self):
        """What IPython shows: the traceback of the first that failed, then the lines."""
        first = self._first()
        if first is None or first.consequence or not first.traceback:
            return [*self.lines(), *self.hint.splitlines()]
        alike = [one for one in self._causes if one.what == first.what] or [first]
        rest = self.lines() if len(self.failures) + len(self.stuck) > 1 else []
        head = f"{ranks_label([one.rank for one in alike])} failed first:"
        return [head, *_fitting(first.traceback), "", *rest, *self.hint.splitlines()]


def interrupted(said):
    """A KeyboardInterrupt that shows where the ranks were, and nothing of the wait itself.

    said: ``{rank: text}``, see ``Failure.what``; None for a rank that has not answered.
    """
    silent = "no answer, not even to the interrupt; next: %ranks restart, or Cluster.restart()"
    by_rank = {
        rank: silent if text is None else text.replace(_STOPPED, "stopped at ")
        for rank, text in said.items()
    }
    lines = ["interrupted", *(f"{ranks_label(ranks)}: {text}" for ranks, text in group(by_rank))]
    error = KeyboardInterrupt("\n".join(lines))
    error._render_traceback_ = lambda: lines  # what IPython asks an exception for
    return error


def explained(error, backend, address, port):
    """A line that says why ranks could not join, from the ``RanksError`` that ended it."""
    first = error.failures[0] if error.failures else None
    text = " ".join(first.text.split()) if first is not None else str(error)
    if "Address already in use" in text:
        return f"port {port} on {address} is in use; leave port out and a free one is chosen"
    if any(word in text for word in ("ackend", "NCCL", "built in")):
        return f"backend {backend!r} cannot be used here: {text}"
    return text


def _was_in(failure):
    """Of a rank that failed because another died: where it was. The death is told already."""
    found = _WAS_IN.search(failure.text)
    return failure.what if failure.died or found is None else found[1]


def _fitting(traceback):
    """The lines of a traceback; of a very long one (a message can be megabytes) the ends."""
    text = "\n".join(traceback)
    return traceback if len(text) <= MOST else cut(text, _REMEDY).splitlines()


def _blame(failure):
    """Sorts deaths first, then causes by time, then consequences by rank."""
    when = "" if failure.consequence else failure.when
    return (not failure.died, failure.consequence, when, failure.rank)
