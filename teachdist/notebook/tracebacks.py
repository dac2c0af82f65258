"""Tracebacks of ranks: the reader's own lines, without the machinery underneath.

Frames of torch, of this package and of IPython's engine say where a collective waits, not what
is wrong with the cell, and colouring them takes seconds the first time. They are left out,
unless nothing else is there.
"""

import importlib.util
import os
import types

_HIDDEN = ("torch", "teachdist", "ipyparallel", "ipykernel", "IPython")


def install(shell):
    """Have ``shell`` show short tracebacks."""
    whole = shell.InteractiveTB.structured_traceback
    hidden = tuple(_directory(package) for package in _HIDDEN)

    def short(kind, error, trace=None, *args, **kwargs):
        _shorten_causes(error, hidden)
        return whole(kind, error, own_frames(trace, hidden), *args, **kwargs)

    shell.InteractiveTB.structured_traceback = short


def own_frames(trace, hidden):
    """``trace`` without frames of files below the directories ``hidden``; whole if none is left."""
    kept = []
    one = trace
    while one is not None:
        if not one.tb_frame.f_code.co_filename.startswith(hidden):
            kept.append(one)
        one = one.tb_next
    linked = None
    for one in reversed(kept):
        linked = types.TracebackType(linked, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return linked or trace


def _shorten_causes(error, hidden):
    seen = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        error.__traceback__ = own_frames(error.__traceback__, hidden)
        error = error.__cause__ or error.__context__


def _directory(package):
    return os.path.dirname(importlib.util.find_spec(package).origin) + os.sep
