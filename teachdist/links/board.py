"""The board: where a rank shows what it is doing, readable while it is blocked.

A rank that waits inside a call cannot be asked. So each rank writes where it is to shared memory
*before* and *after* every call, a microsecond each, and anybody on the same host may read it at
any time, also while that rank holds the GIL or is stopped:

    rank 0's page            rank 1's page            rank 2's page
    +-------------------+    +-------------------+    +-------------------+
    | call 7, in it     |    | call 7, in it     |    | call 6, left it   |
    | all_reduce(...)   |    | broadcast(...)    |    | barrier()         |
    | train.py:29       |    | train.py:31       |    | train.py:12       |
    | waits for rank 1  |    |                   |    | aborted: "..."    |
    +-------------------+    +-------------------+    +-------------------+

Why a board of its own for each process and not one table for all: no rank can scribble over
another's entry, no rank has to create it for the others, and the board dies with its owner. On
Linux it is anonymous memory without a name in the file system (memfd), opened by others through
/proc/<pid>/fd/<n>: even a kill leaves nothing behind. Elsewhere it is a temporary file.

The board has one *page* per group that the process is in. A page keeps not only the present call
but the last `CALLS` ones, each in the slot `number % CALLS`: it costs nothing more, and when
ranks have drifted apart it shows the call at which they parted. Sends and receives have slots
of their own, as they may be under way beside a collective.

A slot is written by one `pack_into`, which nothing in this process can interrupt. A reader of
another process may come in the middle: a slot begins and ends with a counter, and the two
differ while it is being written.

What it costs: 28 KB of memory for a group, touched only where written, and about a microsecond
a call.
"""

import contextlib
import itertools
import json
import mmap
import os
import struct
import tempfile
import threading
import time
import weakref
from dataclasses import dataclass, field

CALLS, MAILS = 40, 8  # slots for collectives, and for sends and receives

_MAGIC = b"tdB2"
_HEAD = struct.Struct("<4sIIIIQ")  # magic, pid, rank, left?, bytes of the description, id
_ABOUT_AT, _ABOUT_MAX = 64, 1472
_ABORT = struct.Struct("<IIidI")  # raised?, generation, culprit, time.time(), bytes
_ABORT_AT, _ABORT_MAX = 1536, 1500
_AWAITS = struct.Struct("<QI")  # the counter of the slot that it belongs to, number of ranks
_AWAITS_AT, _AWAITS_MAX = 3072, 220
_SLOTS_AT, _SLOT = 4096, 512
_TEXT = 456
_ENTRY = struct.Struct(f"<QBBHIQdQ{_TEXT}sQ")
PAGE = _SLOTS_AT + (CALLS + MAILS) * _SLOT
assert PAGE % 4096 == 0

_OFFER = struct.Struct("<qqq")  # generation + 1, descriptors of memory and of the bell
_OFFER_AT = 4000
_MET = struct.Struct("<q")  # generation + 1 in which this rank has opened what others offer
_MET_AT = 4032

IDLE, IN_CALL, LEFT = 0, 1, 2


@dataclass(frozen=True)
class Entry:
    """One call on a page. `since` is on the clock of time.monotonic() of that host.

    number: of the collective in its group, or of the send or receive on its rank. call: words
    for it, with its file and line. fingerprint: equal on all ranks if they are in the same call.
    """

    counter: int
    state: int
    generation: int
    number: int
    since: float
    fingerprint: int
    call: str
    mail: bool = False

    @property
    def what(self):
        """The call without its place: "all_reduce(float32[10], SUM)"."""
        return self.call.rpartition(" at ")[0] or self.call

    @property
    def site(self):
        """The place of the call: "train.py:31"."""
        return self.call.rpartition(" at ")[2]


@dataclass(frozen=True)
class Abort:
    """A failure that ends a generation. culprit: a rank's number in the job. when: time.time().

    whole: the rank's whole program failed, not only a call of this group.
    """

    generation: int
    culprit: int
    message: str
    when: float
    whole: bool = False


@dataclass(frozen=True)
class Position:
    """What a page says about its rank: the call that it is in, or was in last.

    rank: in the group. abort: None, or what its rank says to release the others.
    awaits: the ranks of the group for which the call waits, once it has waited for a moment.
    about: what is known of the group: "group", "size", "ranks" (their numbers in the job), ...
    """

    pid: int
    rank: int
    state: int
    entry: Entry | None
    abort: Abort | None = None
    awaits: tuple = ()
    calls: dict = field(default_factory=dict, repr=False)
    about: dict = field(default_factory=dict, repr=False)

    @property
    def generation(self):
        """How often the group had met anew."""
        return self.entry.generation if self.entry else 0

    @property
    def sequence(self):
        """The number of the group's collective that the rank is in or was in last."""
        return max(self.calls, default=0)

    @property
    def since(self):
        """When the rank came where it is; time.monotonic() of its host."""
        return self.entry.since if self.entry else 0.0

    @property
    def call(self):
        """The present or last call, in words with file and line; "" before the first."""
        return self.entry.call if self.entry else ""

    def words(self):
        """The position as part of a sentence: "in all_reduce(...) at train.py:3, call 7"."""
        if self.state == LEFT:
            return "finished: it has left the group"
        if self.entry is None:
            return "in user code: it has not entered any call of this group"
        ago = max(0.0, time.monotonic() - self.since)
        number = "" if self.entry.mail else f", call {self.entry.number}"
        if self.state == IN_CALL:
            return f"in {self.call}{number}, for {ago:.1f} s"
        return f"in user code for {ago:.1f} s, after {self.call}{number}"


class _Board:
    """The memory of this process, cut into pages."""

    def __init__(self):
        self.pid = os.getpid()
        self.path = None
        if hasattr(os, "memfd_create"):
            self.fd = os.memfd_create(NAME, os.MFD_CLOEXEC)
            self.place = f"{self.pid}:{self.fd}"
        else:
            self.fd, self.path = tempfile.mkstemp(prefix=f"{NAME}-{self.pid}-")
            self.place = self.path
        self.used = {}  # index -> Page
        self.size = 0

    def room(self, page):
        """Room for one more page: (its index, its memory)."""
        index = next(i for i in range(len(self.used) + 1) if i not in self.used)
        self.used[index] = page
        if index >= self.size:
            self.size = index + 1
            os.ftruncate(self.fd, self.size * PAGE)
        return index, mmap.mmap(self.fd, PAGE, offset=index * PAGE)

    def give_back(self, index):
        """Free a page; the last one takes the board with it."""
        self.used.pop(index, None)
        if self.used:
            return
        os.close(self.fd)
        if self.path is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path)


NAME = "teachdist-board"
_ids = itertools.count(1)
_board = None
_guard = threading.Lock()


def _after_fork():
    """A child has a board of its own; the parent's is not its to write on."""
    global _board, _guard
    _board, _guard = None, threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


class Page:
    """This rank's own page in one group: only its owner writes to it.

    about: facts about the group for whoever reads the page from outside.
    """

    def __init__(self, rank, about=None):
        global _board
        self.rank = rank
        self.pid = os.getpid()
        with _guard:
            if _board is None:
                _board = _Board()
            self._owner = _board
            self._index, self._map = _board.room(self)
        self.place = f"{self._owner.place}:{self._index}"
        self._counter = 0
        self._mails = 0
        self._map[:PAGE] = bytes(PAGE)
        self._id = next(_ids)
        self.describe(about or {})

    def describe(self, about):
        """Say what the group is: a dict for whoever reads the page from outside."""
        text = _dumps(about)
        self._map[_ABOUT_AT : _ABOUT_AT + len(text)] = text
        _HEAD.pack_into(self._map, 0, _MAGIC, self.pid, self.rank, 0, len(text), self._id)

    def write(self, state, generation, number, call, fingerprint=0):
        """Say where this rank is now; `call` describes the call with its file and line."""
        if state == LEFT:
            self.leave()
            return
        self._write(number % CALLS, state, generation, number, call, fingerprint)

    def begin_mail(self, generation, call):
        """Say that a send or receive is being waited for; a token for `end_mail`."""
        self._mails = number = self._mails + 1
        self._write(CALLS + number % MAILS, IN_CALL, generation, number, call, 0)
        return number, generation, call

    def end_mail(self, token):
        """The send or receive is over."""
        number, generation, call = token
        self._write(CALLS + number % MAILS, IDLE, generation, number, call, 0)

    def _write(self, slot, state, generation, number, call, fingerprint):
        text = call.encode()[:_TEXT]
        self._counter = counter = self._counter + 1
        _ENTRY.pack_into(
            self._map,
            _SLOTS_AT + slot * _SLOT,
            counter,
            slot >= CALLS,
            state,
            len(text),
            generation,
            number,
            time.monotonic(),
            fingerprint,
            text,
            counter,
        )

    def met(self, generation):
        """Say that this rank has opened what others offer: they may leave."""
        _MET.pack_into(self._map, _MET_AT, generation + 1)

    def awaiting(self, ranks):
        """Say for whom the present call waits. Only for waits that have lasted a moment."""
        ranks = list(ranks)[:_AWAITS_MAX]
        head = _AWAITS.pack(self._counter, len(ranks))
        data = head + struct.pack(f"<{len(ranks)}I", *ranks)
        self._map[_AWAITS_AT : _AWAITS_AT + len(data)] = data

    def abort(self, abort):
        """Release the others: their waits end with the message of this `Abort`."""
        text = abort.message.encode()[:_ABORT_MAX]
        start = _ABORT_AT + _ABORT.size
        self._map[start : start + len(text)] = text
        raised = 2 if abort.whole else 1
        about = (raised, abort.generation, abort.culprit, abort.when, len(text))
        _ABORT.pack_into(self._map, _ABORT_AT, *about)

    def clear_abort(self):
        """Forget a failure: the group meets anew."""
        _ABORT.pack_into(self._map, _ABORT_AT, 0, 0, 0, 0.0, 0)

    def leave(self):
        """Say that this rank will make no more calls in the group."""
        struct.pack_into("<I", self._map, 12, 1)

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
        if self.pid == os.getpid():
            global _board
            with _guard:
                self._owner.give_back(self._index)
                if not self._owner.used and _board is self._owner:
                    _board = None


def own_pages():
    """The pages of this process that are in use."""
    with _guard:
        return list(_board.used.values()) if _board is not None else []


_boards = weakref.WeakValueDictionary()  # (device, inode) -> a mapping of another's whole board


class Window:
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
        if self._map[self._at : self._at + len(_MAGIC)] != _MAGIC:
            raise FileNotFoundError(f"{path} is no board any more")
        self._id = _HEAD.unpack_from(self._map, self._at)[-1]

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
        position = _read(self._map, self._at)
        if _HEAD.unpack_from(self._map, self._at)[-1] == self._id:
            return position
        return Position(position.pid, position.rank, LEFT, None)  # now another group's page

    def offer(self):
        """(generation, memory, bell): the owner's last offer; generation -1 before the first."""
        generation, memory, bell = _OFFER.unpack_from(self._map, self._at + _OFFER_AT)
        return generation - 1, memory, bell

    def met(self):
        """The generation in which the owner has opened what others offer; -1: none."""
        return _MET.unpack_from(self._map, self._at + _MET_AT)[0] - 1

    def abort(self):
        """Only whether the owner has released the others; see `Position.abort`."""
        return _abort(self._map, self._at)

    def close(self):
        """Let go of the mapping."""
        self._map = None


def positions_of(pid):
    """What all pages of a process on this host say: found without its help."""
    positions = []
    with contextlib.suppress(OSError):
        for fd in os.listdir(f"/proc/{int(pid)}/fd"):
            path = f"/proc/{pid}/fd/{fd}"
            if NAME in os.readlink(path):
                positions += _pages_in(pid, fd, os.stat(path).st_size // PAGE)
    return positions


def _pages_in(pid, fd, count):
    for index in range(count):
        with contextlib.suppress(OSError, ValueError):
            position = Window(f"{pid}:{fd}:{index}").read()
            if position.pid == int(pid):  # a process also has others' boards open
                yield position


def _dumps(about):
    """As JSON of bounded length: lists that are too long are left out."""
    text = json.dumps(about).encode()
    if len(text) > _ABOUT_MAX:
        short = {key: value for key, value in about.items() if not isinstance(value, list)}
        text = json.dumps(short).encode()[:_ABOUT_MAX]
    return text


def _read(page, at=0):
    magic, pid, rank, left, size, _ = _HEAD.unpack_from(page, at)
    about = {}
    if magic == _MAGIC and size:
        with contextlib.suppress(ValueError):
            start = at + _ABOUT_AT
            about = json.loads(bytes(page[start : start + min(size, _ABOUT_MAX)]))
    slots = range(at + _SLOTS_AT, at + PAGE, _SLOT)
    entries = [entry for slot in slots if (entry := _entry(page, slot))]
    calls = {entry.number: entry for entry in entries if not entry.mail}
    # Of several calls under way the youngest is where the rank is; else the one ended last.
    entry = max(entries, key=lambda e: (e.state, e.counter), default=None)
    state = LEFT if left else entry.state if entry else IDLE
    awaits = _awaits(page, at, entry)
    return Position(pid, rank, state, entry, _abort(page, at), awaits, calls, about)


def _entry(page, slot):
    end = slot + _ENTRY.size
    for _ in range(20):
        # The end first and the beginning last: a writer changes the beginning before all else.
        tail = int.from_bytes(page[end - 8 : end], "little")
        counter, mail, state, size, generation, number, since, fingerprint, text, _ = (
            _ENTRY.unpack_from(page, slot)
        )
        if tail == int.from_bytes(page[slot : slot + 8], "little"):
            break
    else:
        return None
    if not counter or size > _TEXT or state > LEFT:
        return None
    call = text[:size].decode(errors="replace")
    return Entry(counter, state, generation, number, since, fingerprint, call, bool(mail))


def _awaits(page, at, entry):
    at += _AWAITS_AT
    stamp, count = _AWAITS.unpack_from(page, at)
    if entry is None or entry.state != IN_CALL or stamp < entry.counter or count > _AWAITS_MAX:
        return ()
    return struct.unpack_from(f"<{count}I", page, at + _AWAITS.size)


def _abort(page, at):
    at += _ABORT_AT
    raised, generation, culprit, when, length = _ABORT.unpack_from(page, at)
    if not raised:
        return None
    start = at + _ABORT.size
    text = bytes(page[start : start + min(length, _ABORT_MAX)])
    return Abort(generation, culprit, text.decode(errors="replace"), when, raised == 2)


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
