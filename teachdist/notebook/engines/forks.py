"""A cell may fork: ``multiprocessing``, a ``Pool``, ``os.fork``. What a child must not inherit.

A forked child has a copy of everything that the rank holds, and much of it acts for the rank:

- the handler of SIGTERM ends the rank, its nanny included: a child gets the default back, so that
  ``terminate()`` ends the child alone, with the exit code that one expects. The signal is held back
  while the process forks: Python forgets those that reach a child before it has set itself up;
- ``sys.stdout`` and ``sys.stderr`` hand their text to a thread that the child doesn't have: a
  child writes to the descriptors 1 and 2, which are pipes that the rank reads;
- the engine's loop, from which the rank takes its next cell: a child that comes to the end of its
  cell ends there. So functions that were registered for the exit never run in a child;
- the process group: the backend's own hooks close the child's copies of its sockets.

A child whose rank is killed is ended by the fork server, which kills the rank's process group.
"""

import fcntl
import os
import signal
import struct
import sys
import termios
import threading
import time
import traceback

_DRAINED_WITHIN = 0.5  # seconds
_MOMENT = 0.001

_rank = {"pid": None}  # of the process that is the rank
_forking = threading.local()  # .mask: the signals that this thread held back before it forked


def install():
    """Prepare this process, a rank, for children."""
    if _rank["pid"] is None:
        os.register_at_fork(
            before=_hold_back, after_in_parent=_let_through, after_in_child=_become_plain
        )
    _rank["pid"] = os.getpid()


def _hold_back():
    _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])


def _let_through():
    signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


def _become_plain():
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _let_through()
    sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115  for the child's life
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115


def end_child(error=None):
    """In a forked child that has come to the end of its cell: end, as a script would."""
    if os.getpid() == _rank["pid"]:
        return
    code = 0
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    elif error is not None:
        traceback.print_exception(error)
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def hear_children():
    """Wait until what children (or C code) wrote to our pipes has been read: it belongs to now."""
    deadline = time.monotonic() + _DRAINED_WITHIN
    for stream in (sys.stdout, sys.stderr):
        pipe = getattr(stream, "_fid", None)
        while pipe is not None and _waiting(pipe) and time.monotonic() < deadline:
            time.sleep(_MOMENT)
    time.sleep(_MOMENT)  # the thread that reads may hold the last piece


def _waiting(pipe):
    """How many bytes of a pipe nobody has read yet."""
    return struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4))[0]
