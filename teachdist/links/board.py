"""The board: where a rank shows what it is doing, readable while it is blocked.

A rank that waits inside a call cannot be asked. So each rank writes where it is to a page of
shared memory *before* and *after* every call, about a microsecond each, and anybody on the same
host may read it at any time, also while that rank holds the GIL or is stopped:

    rank 0's page            rank 1's page            rank 2's page
    +-------------------+    +-------------------+    +-------------------+
    | call 7, in it     |    | call 7, in it     |    | call 6, left it   |
    | all_reduce(...)   |    | all_reduce(...)   |    | train.py:31       |
    | since 12.3        |    | since 12.4        |    | aborted: "..."    |
    +-------------------+    +-------------------+    +-------------------+

Why one page per rank and not one table for all: no rank can scribble over another's entry, no
rank has to create it for the others, and the page dies with its owner. On Linux the page is
anonymous memory without a name in the file system (memfd), opened by others through
/proc/<pid>/fd/<n>: even a kill leaves nothing behind. Elsewhere it is a temporary file.

A reader may come while the owner writes: a counter, odd during a write, tells it to look again.
"""

import contextlib
import mmap
import os
import struct
import tempfile
import time
from dataclasses import dataclass

PAGE = 4096
_COUNTER = struct.Struct("<Q")
_ENTRY = struct.Struct("<IIIIQdI")  # pid, rank, state, generation, sequence, since, call bytes
_CALL_AT = _COUNTER.size + _ENTRY.size
_CALL_MAX = 1500
_ABORT = struct.Struct("<III")  # raised?, culprit, bytes
_ABORT_AT = 2048
_ABORT_MAX = 1500

_OFFER = struct.Struct("<qqq")  # generation + 1, descriptors of memory and of the bell
_OFFER_AT = 4000

IDLE, IN_CALL, LEFT = 0, 1, 2


@dataclass(frozen=True)
class Position:
    """What a board page said. `since` is on the clock of time.monotonic() of that host."""

    pid: int
    rank: int
    state: int
    generation: int
    sequence: int
    since: float
    call: str
    abort: tuple | None = None  # (culprit rank, message)

    def words(self):
        """The position as part of a sentence: "in all_reduce(...) at train.py:3, call 7"."""
        ago = max(0.0, time.monotonic() - self.since)
        if self.state == IN_CALL:
            return f"in {self.call}, call {self.sequence}, for {ago:.1f} s"
        if self.state == LEFT:
            return "finished: it has left the group"
        if self.sequence == 0:
            return "in user code: it has not entered any call of this group"
        return f"in user code for {ago:.1f} s, after call {self.sequence}: {self.call}"


class Page:
    """This rank's own page: only its owner writes to it."""

    def __init__(self, rank):
        self.rank = rank
        self.pid = os.getpid()
        self._path = None
        if hasattr(os, "memfd_create"):
            self._fd = os.memfd_create("teachdist-board", os.MFD_CLOEXEC)
            self.place = f"{self.pid}:{self._fd}"
        else:
            self._fd, self._path = tempfile.mkstemp(prefix="teachdist-board-")
            self.place = self._path
        os.ftruncate(self._fd, PAGE)
        self._map = mmap.mmap(self._fd, PAGE)
        self._counter = 0
        self.write(IDLE, 0, 0, "")

    def write(self, state, generation, sequence, call):
        """Say where this rank is now; `call` describes the call with its file and line."""
        text = call.encode()[:_CALL_MAX]
        page, counter = self._map, self._counter
        _COUNTER.pack_into(page, 0, counter + 1)
        _ENTRY.pack_into(
            page,
            8,
            self.pid,
            self.rank,
            state,
            generation,
            sequence,
            time.monotonic(),
            len(text),
        )
        page[_CALL_AT : _CALL_AT + len(text)] = text
        _COUNTER.pack_into(page, 0, counter + 2)
        self._counter = counter + 2

    def abort(self, culprit, message):
        """Release the others: their waits end with this message, which names the culprit."""
        text = message.encode()[:_ABORT_MAX]
        self._map[_ABORT_AT + _ABORT.size : _ABORT_AT + _ABORT.size + len(text)] = text
        _ABORT.pack_into(self._map, _ABORT_AT, 1, culprit, len(text))

    def clear_abort(self):
        """Forget a failure: the group meets anew."""
        _ABORT.pack_into(self._map, _ABORT_AT, 0, 0, 0)

    def offer(self, generation, memory, bell):
        """Say which descriptors of this process hold its shared memory; -1: there is none."""
        _OFFER.pack_into(self._map, _OFFER_AT, 0, memory, bell)
        _OFFER.pack_into(self._map, _OFFER_AT, generation + 1, memory, bell)

    def read(self):
        """This rank's own position."""
        return _read(self._map)

    def close(self):
        """Give the page back. Readers that have it mapped keep their view."""
        if self._map.closed:
            return
        self._map.close()
        os.close(self._fd)
        if self._path is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)


class Window:
    """Another rank's page, mapped read-only."""

    def __init__(self, place):
        pid, _, fd = place.partition(":")
        path = f"/proc/{int(pid)}/fd/{int(fd)}" if pid.isdigit() and fd else place
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._map = mmap.mmap(handle, PAGE, prot=mmap.PROT_READ)
        finally:
            os.close(handle)

    def read(self):
        """The owner's position now (the last one that it wrote, if it is gone)."""
        return _read(self._map)

    def offer(self):
        """(generation, memory, bell): the owner's last offer; generation -1 before the first."""
        generation, memory, bell = _OFFER.unpack_from(self._map, _OFFER_AT)
        return generation - 1, memory, bell

    def close(self):
        """Unmap the page."""
        self._map.close()


def _read(page):
    for _ in range(100):
        (before,) = _COUNTER.unpack_from(page, 0)
        pid, rank, state, generation, sequence, since, size = _ENTRY.unpack_from(page, 8)
        call = bytes(page[_CALL_AT : _CALL_AT + min(size, _CALL_MAX)])
        (after,) = _COUNTER.unpack_from(page, 0)
        if before == after and not before & 1:
            break
    raised, culprit, length = _ABORT.unpack_from(page, _ABORT_AT)
    start = _ABORT_AT + _ABORT.size
    abort = None
    if raised:
        text = bytes(page[start : start + min(length, _ABORT_MAX)])
        abort = (culprit, text.decode(errors="replace"))
    text = call.decode(errors="replace")
    return Position(pid, rank, state, generation, sequence, since, text, abort)


def alive(pid):
    """Whether a process of this host exists and is not a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return not os.path.isdir("/proc/self")
