"""The Python stacks of a rank, also when it is blocked in C++ or does not let go of the GIL.

`faulthandler` writes the stacks of all threads from a signal handler, without the interpreter's
help. Each process of a job keeps a memfd for it and registers SIGUSR2, unless the program uses
that signal itself; whoever asks finds the memfd in /proc/<pid>/fd, sends the signal, and reads.
Nothing is left in the file system, and a process that has not registered is never signalled,
since SIGUSR2 would end it.
"""

import contextlib
import faulthandler
import os
import signal
import time

NAME = "teachdist-stacks"
_MOST = 1 << 18
_SIGNAL = getattr(signal, "SIGUSR2", None)
_END = b"-- end\n"

_fd = None


def prepare():
    """Make this process able to show its stacks; once per process."""
    global _fd
    if _fd is not None or _SIGNAL is None or not hasattr(os, "memfd_create"):
        return
    try:
        if signal.getsignal(_SIGNAL) is not signal.SIG_DFL:
            return
    except ValueError:
        return
    _fd = os.memfd_create(NAME, os.MFD_CLOEXEC)
    faulthandler.register(_SIGNAL, file=_fd, all_threads=True, chain=False)


def _after_fork():
    """The child's stacks go to a file of its own."""
    global _fd
    if _fd is not None:
        faulthandler.unregister(_SIGNAL)
        os.close(_fd)
        _fd = None


os.register_at_fork(after_in_child=_after_fork)


def of(pid, limit=1.0):
    """The stacks of a process on this host, as text; None if it has not registered."""
    path = _file(pid)
    if path is None:
        return None
    with open(path, "rb") as file:
        before = os.fstat(file.fileno()).st_size
        os.kill(pid, _SIGNAL)
        until = time.monotonic() + limit
        size = before
        while time.monotonic() < until:
            time.sleep(0.02)
            last, size = size, os.fstat(file.fileno()).st_size
            if size > before and size == last:  # it has stopped growing
                break
        file.seek(before)
        return file.read(_MOST).decode(errors="replace")


def own():
    """The stacks of this process, asked for by another of its threads."""
    with contextlib.suppress(OSError, ValueError):
        read, write = os.pipe()
        os.set_blocking(write, False)
        try:
            faulthandler.dump_traceback(file=write, all_threads=True)
        finally:
            os.close(write)
        with os.fdopen(read, "rb") as file:
            return file.read(_MOST).decode(errors="replace")
    return ""


def _file(pid):
    with contextlib.suppress(OSError):
        for fd in os.listdir(f"/proc/{int(pid)}/fd"):
            path = f"/proc/{pid}/fd/{fd}"
            if NAME in os.readlink(path):
                return path
    return None
