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

The board has one *page* per group that the process is in, and for a while of those that it has
left, as others may come to the last call later. A page keeps not only the present call but the last
`CALLS` ones, each in the slot `number % CALLS`: it costs nothing more, and when ranks have drifted
apart it shows the call at which they parted. Sends and receives have slots
of their own, as they may be under way beside a collective.

A slot is written by one `pack_into`, which nothing in this process can interrupt. A reader of
another process may come in the middle: a slot begins and ends with a counter, and the two
differ while it is being written (or are zero, for `pack_into` clears the place first: then the
slot is still empty). The end of a call changes no more than its state and its time.

Where a single number says that something is there, `pack_into` would not do: between its clearing
and its last field a reader would find half of it. There the number is written last, by itself.

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
from collections import deque
from time import monotonic

from teachdist.links.board import layout as at
from teachdist.links.board.layout import (
    CALLS,
    ENTRY,
    IDLE,
    IN_CALL,
    MESSAGES,
    NAME,
    PAGE,
    SINCE,
    SINCE_AT,
    SLOT,
    SLOTS_AT,
    STATE,
    TEXT,
    read,
)
from teachdist.links.transport.signals import fence

AT_REST = 16  # pages of groups that this rank has left, to be read by those that come later


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
        self.used = {}  # index -> BoardWriter
        self._free = deque()  # indices of pages that were given back, the oldest first
        self.size = 0

    def room(self, page):
        """Room for one more page: (its index, its memory)."""
        index = self._free.popleft() if len(self._free) > AT_REST else self.size
        self.used[index] = page
        if index >= self.size:
            self.size = index + 1
            os.ftruncate(self.fd, self.size * PAGE)
        return index, mmap.mmap(self.fd, PAGE, offset=index * PAGE)

    def give_back(self, index):
        """Free a page; the last one takes the board with it."""
        if self.used.pop(index, None) is not None:
            self._free.append(index)
        if self.used:
            return
        os.close(self.fd)
        if self.path is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path)


_ids = itertools.count(1)
_board = None
_guard = threading.Lock()


def _after_fork():
    """A child has a board of its own; the parent's is not its to write on."""
    global _board, _guard
    _board, _guard = None, threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


class BoardWriter:
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
        at.HEAD.pack_into(self._map, 0, at.MAGIC, self.pid, rank, 0, 0, next(_ids))
        self.describe(about or {})

    def describe(self, about):
        """Say what the group is: a dict for whoever reads the page from outside."""
        text = _dumps(about)
        self._put(at.ABOUT_SIZE_AT, 0)
        self._map[at.ABOUT_AT : at.ABOUT_AT + len(text)] = text
        self._put(at.ABOUT_SIZE_AT, len(text))

    def write(self, state, generation, number, call, fingerprint=0):
        """Say where this rank is now; `call` describes the call with its file and line."""
        self._write(number % CALLS, state, generation, number, call, fingerprint)

    def over(self, number):
        """The collective `number`, which `write` has shown, is over."""
        self._end(number % CALLS)

    def begin_message(self, generation, call):
        """Say that a send or receive is being waited for; its number, for `end_message`."""
        self._mails = number = self._mails + 1
        self._write(CALLS + number % MESSAGES, IN_CALL, generation, number, call, 0)
        return number

    def end_message(self, number):
        """The send or receive is over."""
        self._end(CALLS + number % MESSAGES)

    def _end(self, slot):
        at = SLOTS_AT + slot * SLOT
        self._map[at + STATE] = IDLE
        at += SINCE_AT
        self._map[at : at + 8] = SINCE.pack(monotonic())

    def _write(self, slot, state, generation, number, call, fingerprint):
        text = call.encode()[:TEXT]
        self._counter = counter = self._counter + 1
        p2p, size, at, since = slot >= CALLS, len(text), SLOTS_AT + slot * SLOT, monotonic()
        about = p2p, state, size, generation, number, since, fingerprint, text
        ENTRY.pack_into(self._map, at, counter, *about, counter)

    def met(self, generation):
        """Say that this rank has opened what others offer: they may leave."""
        at.MET.pack_into(self._map, at.MET_AT, generation + 1)

    def awaiting(self, ranks):
        """Say for whom the present call waits. Only for waits that have lasted a moment."""
        ranks = list(ranks)[: at.AWAITS_MAX]
        head = at.AWAITS.pack(self._counter, len(ranks))
        data = head + struct.pack(f"<{len(ranks)}I", *ranks)
        self._map[at.AWAITS_AT : at.AWAITS_AT + len(data)] = data

    def abort(self, abort):
        """Release the others: their waits end with the message of this `Abort`."""
        text = abort.message.encode()[: at.ABORT_MAX]
        start = at.ABORT_AT + at.ABORT.size
        self._map[start : start + len(text)] = text
        about = (0, abort.generation, abort.culprit, abort.when, len(text))
        at.ABORT.pack_into(self._map, at.ABORT_AT, *about)
        self._put(at.ABORT_AT, 2 if abort.whole else 1)

    def clear_abort(self):
        """Forget a failure: the group meets anew."""
        at.ABORT.pack_into(self._map, at.ABORT_AT, 0, 0, 0, 0.0, 0)

    def leave(self):
        """Say that this rank will make no more calls in the group."""
        self._put(at.LEFT_AT, 1)

    def offer(self, generation, memory, bell):
        """Say which descriptors of this process hold its shared memory; -1: there is none."""
        at.OFFER.pack_into(self._map, at.OFFER_AT, 0, memory, bell)
        self._put(at.OFFER_AT, generation + 1)

    def _put(self, at, number):
        """Write a 32-bit number in one piece, after everything before."""
        fence()
        self._map[at : at + 4] = number.to_bytes(4, "little")

    def read(self):
        """This rank's own position."""
        return read(self._map)

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


def _dumps(about):
    """As JSON of bounded length: lists that are too long are left out."""
    text = json.dumps(about).encode()
    if len(text) > at.ABOUT_MAX:
        short = {key: value for key, value in about.items() if not isinstance(value, list)}
        text = json.dumps(short).encode()[: at.ABOUT_MAX]
    return text
