"""Which line of the user's code is this? Asked at the start of every call, so it has to be quick.

The line wanted is not the innermost one: that lies in torch, or here. It is the innermost one
that belongs to neither. Files are few and frames are many, so what is known about a file is kept.
(Not about a code object, whose hash is computed anew each time.)
"""

import contextlib
import sys
import sysconfig
import threading
from pathlib import Path

import torch

_OURS = str(Path(__file__).parents[1])
_TORCH = str(Path(torch.__file__).parent)
_SKIPPED = (_OURS, _TORCH, "<frozen", "<string>", "<__array_function__")
_LIBRARY = (sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"))
_DEBUGGER = ("pdb.py", "bdb.py", "pydevd.py")

IDLE = "idle"

_others = set()  # files that are not the user's
_names = {}  # (file, line) -> "train.py:31"


def call_site(inner=1):
    """Where the user's code made the present call: "train.py:31".

    inner: how many of the innermost frames are known to be ours.
    """
    others, frame = _others, sys._getframe(inner)
    try:
        while True:
            while frame.f_code.co_filename in others:
                frame = frame.f_back
            where = frame.f_code.co_filename, frame.f_lineno
            name = _names.get(where) or _name(*where)
            if name:
                return name
    except AttributeError:  # that was the outermost frame
        return _nobodys()


def raised_at(error):
    """The innermost line of the user's code that an exception has passed, or ""."""
    where, trace = "", error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if is_users(file) and not file.startswith(_LIBRARY):
            where = place(file, trace.tb_lineno)
        trace = trace.tb_next
    return where


def is_users(file):
    """Whether a file is the user's own: neither torch's nor this package's."""
    return not file.startswith(_SKIPPED) and not file.endswith("/contextlib.py")


def _name(file, line):
    """The name of a line of the user's; "" if it is not, which is remembered."""
    for known in (_names, _others):
        if len(known) > 10_000:  # code made by exec, again and again
            known.clear()
    if not is_users(file):
        _others.add(file)
        return ""
    name = _names[file, line] = place(file, line)
    return name


def place(file, line):
    """A file's line as a reader knows it: "train.py:31", or "cell 3, line 2" in a notebook."""
    if "ipykernel_" in file or file.startswith("<ipython-input"):
        return f"cell {_cell_number(file)}, line {line}".replace("cell , ", "cell, ")
    return f"{file.rpartition('/')[2]}:{line}"


def _cell_number(file):
    with contextlib.suppress(Exception):
        shell = sys.modules["IPython"].get_ipython()
        return shell.compile._filename_map[file]
    return ""


def _nobodys():
    """No line of the user's is on the stack: whose thread is this?"""
    if isinstance(threading.current_thread(), threading._DummyThread):
        return "backward (a thread of autograd)"
    return f"thread {threading.current_thread().name}"


def main_thread():
    """What the main thread is doing: "data.py:57, in load", or that it stands in a debugger.

    IDLE: it is a notebook's rank between two cells.
    """
    frame = sys._current_frames().get(threading.main_thread().ident)
    debugger, first = False, None
    kernel = False
    while frame is not None:
        file = frame.f_code.co_filename
        name = file.rpartition("/")[2]
        debugger = debugger or name in _DEBUGGER
        kernel = kernel or "/ipykernel/" in file or "/ipyparallel/" in file
        where = f"{place(file, frame.f_lineno)}, in {frame.f_code.co_name}"
        where = where.removesuffix(", in <module>")
        first = first or where
        if name not in _DEBUGGER and not file.startswith((*_SKIPPED, *_LIBRARY)):
            return f"stopped in the debugger at {where}" if debugger else where
        frame = frame.f_back
    if debugger:
        return "stopped in the debugger"
    return IDLE if kernel else first or ""
