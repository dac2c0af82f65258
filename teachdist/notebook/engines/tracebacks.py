"""Tracebacks of ranks: the reader's own lines, without the machinery underneath.

Frames of torch, of this package and of IPython's engine say where a collective waits, not what
is wrong with the cell, and colouring them takes seconds the first time. They are left out,
unless nothing else is there.
"""

import importlib.util
import os
import types

_HIDDEN = ("torch", "teachdist", "ipyparallel", "ipykernel", "IPython", "asyncio")
_NO_RUN = "asyncio.run() cannot be called from a running event loop"


def install(shell):
    """Have ``shell`` show short tracebacks."""
    whole = shell.InteractiveTB.structured_traceback
    hidden = directories()

    def short(kind, error, trace=None, *args, **kwargs):
        if str(error) == _NO_RUN:
            error.args = (
                f"{_NO_RUN}, and a cell runs on one: write await f() for asyncio.run(f())",
            )
        _shorten_causes(error, hidden)
        return whole(kind, error, own_frames(trace, hidden) or trace, *args, **kwargs)

    shell.InteractiveTB.structured_traceback = short


def directories():
    """Where the machinery's files are, for `own_frames`."""
    return tuple(_directory(package) for package in _HIDDEN)


def own_frames(trace, hidden):
    """``trace`` without frames of files below the directories ``hidden``; None if none is left."""
    kept = []
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith(hidden):
            kept.append(trace)
        trace = trace.tb_next
    linked = None
    for one in reversed(kept):
        linked = types.TracebackType(linked, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return linked


def _shorten_causes(error, hidden):
    """Shorten the errors that led to ``error``; leave out those of the machinery alone."""
    cause = error.__cause__ or error.__context__
    if cause is None or cause is error or (error.__suppress_context__ and error.__cause__ is None):
        return
    cause.__traceback__ = own_frames(cause.__traceback__, hidden)
    if cause.__traceback__ is None:
        error.__cause__ = error.__context__ = None
    else:
        _shorten_causes(cause, hidden)


def _directory(package):
    return os.path.dirname(importlib.util.find_spec(package).origin) + os.sep
