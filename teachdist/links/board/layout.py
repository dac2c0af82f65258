"""A page of the board: what stands where, and how to read it. (How it is written: `writer.py`.)

      0  head     magic, process, rank, whether it has left, an id that no other page has
     64  about    JSON: the group's name, size, ranks
   1536  abort    the failure with which this rank releases the others
   3072  awaits   for whom the present call waits
   4000  offer    the shared memory that this rank offers (`collective/links.py`)
   4096  slots    the last 40 collectives, the last 8 sends and receives, 512 bytes each

A slot begins and ends with a counter. The writer changes the beginning first and the end last, so
a reader who finds the same number in both has read one entry and not the halves of two. What says
that something else is there (an offer, an abort, a description) is written last, in one piece.
"""

import contextlib
import json
import struct
import time
from dataclasses import dataclass, field

NAME = "teachdist-board"  # of the memory that holds a process's pages

CALLS, MESSAGES = 40, 8  # slots for collectives, and for sends and receives

MAGIC = b"tdB3"
HEAD = struct.Struct("<4sIIII4xQ")  # magic, pid, rank, left?, bytes of the description, id
LEFT_AT, ABOUT_SIZE_AT = 12, 16  # within it
ABOUT_AT, ABOUT_MAX = 64, 1472
ABORT = struct.Struct("<IIidI")  # raised?, generation, culprit, time.time(), bytes
ABORT_AT, ABORT_MAX = 1536, 1500
AWAITS = struct.Struct("<QI")  # the counter of the slot that it belongs to, number of ranks
AWAITS_AT, AWAITS_MAX = 3072, 220
SLOTS_AT, SLOT = 4096, 512
TEXT = 456
ENTRY = struct.Struct(f"<QBBHIQdQ{TEXT}sQ")
STATE, SINCE_AT, SINCE = 9, 24, struct.Struct("<d")  # within an entry
# For quick looks the page is read as words of 8 bytes. Of the page, and of an entry:
ID_WORD, ABORT_WORD = 3, ABORT_AT // 8
_SLOTS_WORD, _SLOT_WORDS = SLOTS_AT // 8, SLOT // 8
_GENERATION_WORD, _NUMBER_WORD, _FINGERPRINT_WORD, _END_WORD = 1, 2, 4, ENTRY.size // 8 - 1
PAGE = SLOTS_AT + (CALLS + MESSAGES) * SLOT
assert PAGE % 4096 == 0

OFFER = struct.Struct("<qqq")  # generation + 1, descriptors of memory and of the bell
OFFER_AT = 4000
MET = struct.Struct("<q")  # generation + 1 in which this rank has opened what others offer
MET_AT = 4032

IDLE, IN_CALL, LEFT = 0, 1, 2


@dataclass(frozen=True)
class Entry:
    """One call on a page. `since` is on the clock of time.monotonic() of that host.

    number: of the collective in its group, or of the send or receive on its rank, from 1. call:
    words for it, with its file and line. fingerprint: equal on all ranks if they are in the same
    call. how: the name of the algorithm, once it is chosen.
    """

    counter: int
    state: int
    generation: int
    number: int
    since: float
    fingerprint: int
    call: str
    p2p: bool = False
    how: str = ""

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
            return "in user code, before any call of this group"
        ago = max(0.0, time.monotonic() - self.since)
        number = "" if self.entry.p2p else f", call {self.entry.number}"
        if self.state == IN_CALL:
            return f"in {self.call}{number}, for {ago:.1f} s"
        return f"in user code for {ago:.1f} s, after {self.call}{number}"


def read(page, at=0):
    """The `Position` that the page at byte `at` of a mapping shows."""
    magic, pid, rank, left, size, _ = HEAD.unpack_from(page, at)
    about = {}
    if magic == MAGIC and size:
        with contextlib.suppress(ValueError):
            start = at + ABOUT_AT
            about = json.loads(bytes(page[start : start + min(size, ABOUT_MAX)]))
    slots = range(at + SLOTS_AT, at + PAGE, SLOT)
    entries = [entry for slot in slots if (entry := _entry(page, slot))]
    calls = {entry.number: entry for entry in entries if not entry.p2p}
    # Of several calls under way the youngest is where the rank is; else the one ended last.
    entry = max(entries, key=lambda e: (e.state, e.counter), default=None)
    state = LEFT if left else entry.state if entry else IDLE
    awaits = _awaits(page, at, entry)
    return Position(pid, rank, state, entry, read_abort(page, at), awaits, calls, about)


def _entry(page, slot):
    end = slot + ENTRY.size
    for _ in range(20):
        # The end first and the beginning last: a writer changes the beginning before all else.
        tail = int.from_bytes(page[end - 8 : end], "little")
        counter, p2p, state, size, generation, number, since, fingerprint, text, _ = (
            ENTRY.unpack_from(page, slot)
        )
        if tail == int.from_bytes(page[slot : slot + 8], "little"):
            break
    else:
        return None
    if not counter or size > TEXT or state > LEFT:
        return None
    call, how = unmarked(text[:size].decode(errors="replace"))
    return Entry(counter, state, generation, number, since, fingerprint, call, bool(p2p), how)


def marked(how):
    """What stands behind a call's words to name its algorithm; no reader of sentences sees it."""
    return f"\x1f{how}"


def unmarked(text):
    """(the words, the algorithm or "")."""
    words, _, how = text.partition("\x1f")
    return words, how


def fingerprint(words, number):
    """(generation, fingerprint) of collective `number`, quickly; None if the rank is not there.

    words: the page. A rank that has made `CALLS` more since says nothing of it any more: its
    generation is then -1.
    """
    at = _SLOTS_WORD + number % CALLS * _SLOT_WORDS
    end = words[at + _END_WORD]
    found, mark = words[at + _NUMBER_WORD], words[at + _FINGERPRINT_WORD]
    generation = words[at + _GENERATION_WORD] >> 32
    if found < number or words[at] != end or not end:  # not there, or being written
        return None
    return (generation, mark) if found == number else (-1, 0)


def _awaits(page, at, entry):
    at += AWAITS_AT
    stamp, count = AWAITS.unpack_from(page, at)
    if entry is None or entry.state != IN_CALL or stamp < entry.counter or count > AWAITS_MAX:
        return ()
    return struct.unpack_from(f"<{count}I", page, at + AWAITS.size)


def read_abort(page, at=0):
    """Only the `Abort` on a page, or None."""
    at += ABORT_AT
    raised, generation, culprit, when, length = ABORT.unpack_from(page, at)
    if not raised:
        return None
    start = at + ABORT.size
    text = bytes(page[start : start + min(length, ABORT_MAX)])
    return Abort(generation, culprit, text.decode(errors="replace"), when, raised == 2)
