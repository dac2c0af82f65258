"""What pytest shows when several ranks have failed: each failure once, with its ranks.

Ranks that failed with the same words at the same line are one failure; those that failed there with
other words (`assert 1 == 0`, `assert 2 == 0`) are a line each under it. Of an error that torch or
this package made for a rank (a hang, a mismatch) the lines end where the test's own code ends.
"""

import pathlib
import re

import pytest
import torch
import torch.distributed as dist
from _pytest._code.code import (
    ExceptionChainRepr,
    ReprFileLocation,
    ReprTraceback,
    ReprTracebackNative,
)

import teachdist
from teachdist.words import ranks_words

_INSIDE = tuple(str(pathlib.Path(one.__file__).parent) for one in (torch, teachdist))
_LINES = 8  # ranks that failed at one line with words of their own, and are shown


class Failure:
    """A rank has failed. shown: pytest's representation, if the rank itself has made it."""

    def __init__(self, rank, error, shown=None):
        self.rank, self.error, self.shown = rank, error, shown

    @property
    def words(self):
        """The error in words, without what differs on each rank and says nothing: addresses."""
        return re.sub("0x[0-9a-f]+", "0x...", f"{type(self.error).__name__}: {self.error}")

    def place(self):
        """What is equal for failures that are shown together: their line, or a verdict on all."""
        if isinstance(self.error, dist.DistError):
            return self.words
        crash = self.shown.reprcrash
        return type(self.error), crash and (crash.path, crash.lineno)


class Failures:
    """The failures of one test, the first to fail first. released: they failed because of those."""

    def __init__(self, failed, released=()):
        self.failed, self.released = failed, released

    def __bool__(self):
        return bool(self.failed)

    @property
    def first(self):
        """The error with which it began."""
        return self.failed[0].error

    def shown(self, item):
        """Pytest's representation of all, for `item`."""
        places = {}
        for one in self.failed:
            one.shown = one.shown or _shown(one.error, item)
            places.setdefault(one.place(), []).append(one)
        chain = []
        for group in places.values():
            chain.append(_line(f"On {_same(group)}:"))
            chain += group[0].shown.chain
            chain += map(_line, _others(group))
        if self.released:
            words = ranks_words([one.rank for one in self.released])
            chain.append(_line(f"{words.capitalize()}: released, as what they waited for failed."))
        whole = ExceptionChainRepr(chain)
        whole.reprcrash = self._crash(next(iter(places.values())))
        return whole

    def _crash(self, group):
        """For the summary: where it began, and on which ranks."""
        crash = group[0].shown.reprcrash
        if crash is None:
            return None
        return ReprFileLocation(crash.path, crash.lineno, f"{_same(group)}: {crash.message}")


def _shown(error, item):
    """Pytest's representation of one error."""
    if error.__traceback__ is None:  # it has come from a process as text
        text = "\n".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ())])
        return ExceptionChainRepr([(ReprTracebackNative([f"{text}\n"]), None, None)])
    cut(error)
    return item.repr_failure(pytest.ExceptionInfo.from_exception(error))


def _same(group):
    """The ranks that said what the first of a group said."""
    return ranks_words([one.rank for one in group if one.words == group[0].words])


def _others(group):
    """Lines for those that said something else at the same line."""
    alike = {}
    for one in group:
        if one.words != group[0].words:
            alike.setdefault(one.words.splitlines()[0], []).append(one.rank)
    lines = [f"On {ranks_words(ranks)}: {words}" for words, ranks in alike.items()]
    if len(lines) > _LINES:
        lines[_LINES:] = [f"... and {len(lines) - _LINES} more"]
    return lines


def _line(text):
    """A line of text as a link of pytest's chain."""
    return ReprTraceback([], text, "long"), None, None


def cut(error):
    """End the traceback of an error that was made for the rank where the test's code ends."""
    if not isinstance(error, dist.DistError):
        return
    last, trace = None, error.__traceback__
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith(_INSIDE):
            last = trace
        trace = trace.tb_next
    if last is not None:
        last.tb_next = None
    error.__cause__ = error.__context__ = None
