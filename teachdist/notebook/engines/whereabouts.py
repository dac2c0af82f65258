"""Where in a cell a rank is, or was when it was interrupted: "cell 3, line 2: f()"."""

import linecache
import os
import sys
import threading

from teachdist.notebook.engines import asynchronous


def position(shell):
    """The innermost line of the user's own code on the main thread, and what it called."""
    frame = innermost = sys._current_frames()[threading.main_thread().ident]
    while frame is not None:
        if place := _place(frame, frame.f_lineno, shell):
            inside = "" if frame is innermost else f", in {innermost.f_code.co_name}"
            return place + inside
        frame = frame.f_back
    for waits in asynchronous.waiting_frames():
        if place := _place(waits, waits.f_lineno, shell):
            return place
    file = os.path.basename(innermost.f_code.co_filename)
    return f"{innermost.f_code.co_name} ({file}:{innermost.f_lineno})"


def _place(frame, number, shell):
    """A line of a cell, as "cell 3, line 2: f()"; "" if the frame belongs to no cell."""
    file = frame.f_code.co_filename
    cell = getattr(shell.compile, "_filename_map", {}).get(file)
    if cell is None:
        return ""
    return f"cell {cell}, line {number}: {linecache.getline(file, number).strip()}"


def say_where(error, shell):
    """Have a KeyboardInterrupt say where in a cell it came."""
    if not isinstance(error, KeyboardInterrupt) or error.args:
        return
    place, trace = "", error.__traceback__
    while trace is not None:
        place = _place(trace.tb_frame, trace.tb_lineno, shell) or place
        trace = trace.tb_next
    error.args = (place,) if place else ()
