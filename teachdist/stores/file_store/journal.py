"""A dictionary in a file that several processes append to: the format of torch's FileStore.

The file is a list of records, each a key and a value with their lengths (u32, little-endian)
before them. Nothing is ever changed in place: a later record of the same key wins, and a key with
"-" before it deletes. A process knows how far it has read and replays what others have added
since. The lock is ``flock``: exclusive to write, shared to read; the system releases it when its
holder dies.

Keys of users begin with "/". The others are bookkeeping: ``refcount/`` counts the stores that are
open, ``cleanup/`` those that were closed; both by torch.

One trick is ours. A deletion of a key that never existed changes nothing for torch, and its value
is not looked at. So the note "-!joined/..." is read by us only, and torch neither sees nor counts
it.

What torch's reader does not expect and ours does: a record cut off in the middle, left by a process
that was killed while it wrote. A reader stops before it; the next writer cuts it off.

Source: torch/csrc/distributed/c10d/FileStore.cpp and the files that torch 2.14 writes.
"""

import contextlib
import fcntl
import os
import struct
import time
from pathlib import Path

_U32 = struct.Struct("<I")
_NOTE = b"-!"
_LOCK_POLL = 0.002


class JournalGoneError(Exception):
    """The file was deleted, or is another one than it was."""


class Journal:
    """The file at ``path`` and what it says: ``values`` and ``notes``, both bytes to bytes."""

    def __init__(self, path):
        self.path = path
        self.values = {}
        self.notes = {}
        self._position = 0
        self._ours = None  # place and bytes of the first record that we wrote
        self._fd = None

    @contextlib.contextmanager
    def locked(self, seconds, *, exclusive, create=False):
        """Hold the file's lock, with everything read that others have written.

        Raises:
            JournalGoneError: the file is not there, or not the one that was read so far.
            TimeoutError: somebody holds the lock for longer than ``seconds``.
        """
        self._fd = self._open(create)
        try:
            self._lock(seconds, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
            status = os.fstat(self._fd)
            if not status.st_nlink or not self._is_the_same():
                raise JournalGoneError("it was deleted, or replaced by another one")
            self._replay(status.st_size, exclusive)
            yield self
        finally:
            os.close(self._fd)
            self._fd = None

    def append(self, key, value):
        """Add a record; the lock must be held exclusively."""
        record = b"".join((_U32.pack(len(key)), key, _U32.pack(len(value)), value))
        os.lseek(self._fd, 0, os.SEEK_END)
        with memoryview(record) as rest:
            while len(rest):
                rest = rest[os.write(self._fd, rest) :]
        self._ours = self._ours or (self._position, record)
        self._position += len(record)
        self._apply(key, value)

    def note(self, key, value):
        """Add a note, which torch does not see."""
        self.append(_NOTE + key, value)

    @property
    def size(self):
        """Bytes read and written so far; it grows with every record."""
        return self._position

    def remove(self):
        """Delete the file."""
        with contextlib.suppress(FileNotFoundError):
            Path(self.path).unlink()

    def _is_the_same(self):
        """Whether our record is where we wrote it. A new file may well get the old one's inode."""
        place, record = self._ours or (0, b"")
        return os.pread(self._fd, len(record), place) == record

    def _open(self, create):
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        try:
            return os.open(self.path, flags, 0o644)
        except FileNotFoundError as error:
            if create:
                raise
            raise JournalGoneError("it was deleted") from error

    def _lock(self, seconds, kind):
        """``flock`` itself has no time-out, and a stopped process may hold the lock."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                return fcntl.flock(self._fd, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"its lock was held for {seconds:.1f} s") from None
            time.sleep(_LOCK_POLL)

    def _replay(self, size, exclusive):
        data = os.pread(self._fd, size - self._position, self._position)
        while len(data) < size - self._position:  # one read gives 2 GiB at most
            data += os.pread(
                self._fd, size - self._position - len(data), self._position + len(data)
            )
        at = 0
        while (record := _record(data, at)) is not None:
            at, key, value = record
            self._apply(key, value)
        self._position += at
        if at < len(data) and exclusive:
            os.ftruncate(self._fd, self._position)

    def _apply(self, key, value):
        if key.startswith(_NOTE):
            self.notes[key.removeprefix(_NOTE)] = value
        elif key.startswith(b"-"):
            self.values.pop(key[1:], None)
        else:
            self.values[key] = value


def _record(data, at):
    """The record at this place as ``(end, key, value)``, or None when it is not all there."""
    strings = []
    for _ in range(2):
        if at + 4 > len(data):
            return None
        (size,) = _U32.unpack_from(data, at)
        at += 4 + size
        if at > len(data):
            return None
        strings.append(data[at - size : at])
    return at, *strings
