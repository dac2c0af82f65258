"""Looking at another process's board, with or without knowing where its pages are."""

import contextlib
import mmap
import os
import weakref

from teachdist.links.board import layout as at
from teachdist.links.board.layout import LEFT, NAME, PAGE, Position, read, read_abort

_boards = weakref.WeakValueDictionary()  # (device, inode) -> a mapping of another's whole board


class BoardReader:
    """Another rank's page, mapped read-only.

    All pages of one process are seen through one mapping, for each holds a file descriptor.
    """

    def __init__(self, place):
        path, _, index = place.rpartition(":")
        pid, _, fd = path.partition(":")
        if pid.isdigit() and fd.isdigit():
            path = f"/proc/{pid}/fd/{fd}"
        self._at = int(index) * PAGE
        self._map = self._open(path, self._at + PAGE)
        if self._map[self._at : self._at + len(at.MAGIC)] != at.MAGIC:
            raise FileNotFoundError(f"{path} is no board any more")
        self._words = memoryview(self._map)[self._at : self._at + PAGE].cast("Q")
        self._id = self._words[at.ID_WORD]

    @staticmethod
    def _open(path, size):
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            about = os.fstat(handle)
            key = (about.st_dev, about.st_ino)
            board = _boards.get(key)
            if board is None or len(board) < size:
                board = mmap.mmap(handle, about.st_size, prot=mmap.PROT_READ)
                _boards[key] = board
        finally:
            os.close(handle)
        if len(board) < size:
            raise FileNotFoundError(f"{path} has no such page any more")
        return board

    def read(self):
        """The owner's position now (the last one that it wrote, if it is gone)."""
        position = read(self._map, self._at)
        if self._same():
            return position
        return Position(position.pid, position.rank, LEFT, None)  # now another group's page

    def glance(self, number):
        """(Whether the owner has released the others, `page.fingerprint` of a call): quickly."""
        words = self._words
        if words[at.ID_WORD] != self._id:
            return False, (-1, 0)
        return words[at.ABORT_WORD] & 0xFFFFFFFF != 0, at.fingerprint(words, number)

    def offer(self):
        """(generation, memory, bell): the owner's last offer; generation -1 before the first."""
        generation, memory, bell = at.OFFER.unpack_from(self._map, self._at + at.OFFER_AT)
        return generation - 1, memory, bell

    def met(self):
        """The generation in which the owner has opened what others offer; -1: none."""
        return at.MET.unpack_from(self._map, self._at + at.MET_AT)[0] - 1

    def abort(self):
        """Only whether the owner has released the others; see `Position.abort`."""
        return read_abort(self._map, self._at) if self._same() else None

    def _same(self):
        """Whether the page is still that of the group for which it was opened."""
        return self._words[at.ID_WORD] == self._id

    def close(self):
        """Let go of the mapping."""
        self._map = self._words = None


def positions_of(pid):
    """What all pages of a process on this host say: found without its help."""
    positions, seen = [], set()
    with contextlib.suppress(OSError):
        for fd in os.listdir(f"/proc/{int(pid)}/fd"):
            path = f"/proc/{pid}/fd/{fd}"
            if NAME not in os.readlink(path):
                continue
            about = os.stat(path)
            if about.st_ino not in seen:  # Python keeps a descriptor for each mapping, too
                seen.add(about.st_ino)
                positions += _pages_in(pid, fd, about.st_size // PAGE)
    return positions


def _pages_in(pid, fd, count):
    for index in range(count):
        with contextlib.suppress(OSError, ValueError):
            position = BoardReader(f"{pid}:{fd}:{index}").read()
            if position.pid == int(pid):  # a process also has others' boards open
                yield position


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
