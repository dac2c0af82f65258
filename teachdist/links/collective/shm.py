"""Shared memory between the ranks of one host: each writes its own, everybody reads.

Every rank has one piece of memory, which the others map:

    +--------------------------+-----------+-----------+-----------+-----------+
    | READY DONE ASLEEP stamps |  slot 0   |  slot 1   |  slot 2   |  slot 3   |
    +--------------------------+-----------+-----------+-----------+-----------+
          a broadcast's turns:   0, 4, 8..   2, 6, 10..  1, 5, 9..   3, 7, 11..
         an all_reduce's turns:  0, 2, 4, 6, 8..         1, 3, 5, 7, 9..

A turn, on every rank: copy what leaves into the next slot, once, whoever it is for; raise READY to
the turn's number. Wait until the others' READY is there too; read from their slots, adding up right
where the numbers lie; raise DONE. That is all there is, but for one rule: a slot may be written
again only when those who were to read its last turn have raised their DONE to it. With one counter
in place of two, a fast rank overwrites what a slow one still reads.

Where only some give, they may be up to four turns ahead of the others: then nobody need stop for
each turn. Where all give and take, none can be ahead so far; there a turn has two slots for twice
the data, which is 10 to 20 % faster.

Numbers of turns grow over all calls of the group, and a call's turns begin at a number that its
sequence number tells. So ranks need not do the same number of turns in a call.

Why so fast: a socket copies every byte twice and wakes a process for every message; here it is
copied once, when published, and mostly nobody sleeps (`transport/signals.py`). Why not lend the
caller's own memory to the others (process_vm_readv): slots stay in the processor's cache, the
callers' tensors don't, and it measured slower.

Safety: each slot says whose turn and which call (fingerprint) it holds, and each chunk its length;
nothing is read before they fit. (Ranks in different calls may also wait for each other without a
message between them; that is seen on the board, by who has waited for a tick.)

Cost: 4 MB per rank and group, taken at the first collective.
"""

import os
from typing import NamedTuple

import torch

from teachdist.links.collective.exchange import SEGMENT, TABLE, WIDE_SEGMENT
from teachdist.links.errors import Mismatch
from teachdist.links.transport.memory import attach, attach_other, create
from teachdist.links.transport.raw import scratch
from teachdist.links.transport.signals import DONE, READY, signals

PAGE = 4096
SLOTS = 4
SLOT = TABLE + SEGMENT  # the chunks' lengths, then the chunks
# The slots of a turn, by its number modulo SLOTS: one, or both of a pair.
NARROW, WIDE = ((0,), (2,), (1,), (3,)), ((0, 1), (2, 3), (0, 1), (2, 3))
SIZE = PAGE + SLOTS * SLOT

# Words of the first page, beside those of transport/signals.py: the numbers and the fingerprints of
# the last four turns.
STAMPS = 32


class Slab:
    """One rank's memory, mapped."""

    def __init__(self, mapped):
        self.bytes = memoryview(mapped)
        self.words = self.bytes.cast("Q")
        self._mapped = mapped
        self._tensors = {}

    def tensor(self, at, numel, dtype):
        """A tensor over the memory that starts at byte `at`: no copy."""
        key = (at, numel, dtype)
        made = self._tensors.get(key)
        if made is None:
            if len(self._tensors) > 512:
                self._tensors.clear()
            made = (
                torch.frombuffer(self._mapped, dtype=dtype, count=numel, offset=at)
                if numel
                else scratch(0, dtype)
            )
            self._tensors[key] = made
        return made


class Ways(NamedTuple):
    """Where the chunks of a step lie, in this rank's memory and in the others'.

    leaving: (index of the length's word, length, place in the slot, bytes) of each chunk.
    coming: (peer, its counters, its words, [(index of the length's word, length, place in the
    peer's slot, room or None)]). arrived: {(peer, chunk): tensor over its place}.
    readers, givers: who takes from this rank and from whom it takes, with their counters.
    slots: those that it fills.
    """

    leaving: list
    coming: list
    arrived: dict
    readers: list
    givers: list
    slots: tuple


class ShmLinks:
    """The links of one rank to peers that share memory with it."""

    def __init__(self, rank):
        self.rank = rank
        self.memory = create(SIZE, "slots")
        self.mine = Slab(attach(self.memory, SIZE))
        self.signals = signals(rank, self.mine.words)
        self._words, self._bytes = self.mine.words, self.mine.bytes
        self.slabs = {}
        self._readers = [(0, ())] * SLOTS  # per slot: its last turn, and who was to read it

    def meet(self, peer, pid, memory, bell):
        """Map a peer's memory; OSError when that can't be done."""
        slab = Slab(attach_other(pid, memory, SIZE, "slots"))
        self.signals.meet(peer, slab.words, pid, bell)
        self.slabs[peer] = slab

    def post(self, exchange, step):
        """Publish what leaves in this step."""
        stamp = exchange.first + step.turn.number
        now = stamp % SLOTS
        leaving, _, _, readers, _, slots = (step.known and step.known[now]) or self._ways(
            exchange, step, now
        )
        if not readers:
            return
        for slot in slots:
            last, before = self._readers[slot]
            for peer, counters in before:
                if counters[DONE] < last:
                    self.signals.wait(peer, DONE, last, exchange.deadline)
            self._readers[slot] = stamp, readers
        words, at = self._words, STAMPS + 2 * now
        for length_at, length, place, view in leaving:
            words[length_at] = length
            place[:] = view
        words[at] = stamp
        words[at + 1] = exchange.header.fingerprint
        self.signals.raise_to(READY, stamp, readers)

    def take(self, exchange, step):
        """Wait for the step's messages.

        What has no room of its own is answered, {(peer, chunk): tensor}: it lies in the sender's
        memory and is good until `release`.
        """
        stamp = exchange.first + step.turn.number
        now = stamp % SLOTS
        at = STAMPS + 2 * now
        ways = (step.known and step.known[now]) or self._ways(exchange, step, now)
        for peer, counters, words, chunks in ways.coming:
            if counters[READY] < stamp:
                self.signals.wait(peer, READY, stamp, exchange.deadline)
            if words[at] != stamp or words[at + 1] != exchange.header.fingerprint:
                raise Mismatch(f"rank {peer} is in another call", peer)
            for length_at, length, place, room in chunks:
                if words[length_at] != length:
                    raise Mismatch(
                        f"rank {peer} gives {words[length_at]} bytes where this rank expects "
                        f"{length}",
                        peer,
                    )
                if room is not None:
                    room[:] = place
        return ways.arrived

    def release(self, exchange, step):
        """What `take` gave has been read."""
        stamp = exchange.first + step.turn.number
        self.signals.raise_to(DONE, stamp, step.known[stamp % SLOTS].givers)

    def _ways(self, exchange, step, now):
        """Work out where a step's chunks lie in a turn of this number, and keep it with it."""
        if step.known is None:
            step.known = [None] * SLOTS
        slots = (WIDE if exchange.segment == WIDE_SEGMENT else NARROW)[now]
        rnd, start = step.turn.rnd, PAGE + slots[0] * SLOT
        lengths_at, first = start >> 3, start + exchange.table
        leaving, coming, arrived = [], [], {}
        for index, chunk in enumerate(rnd.published if rnd.sends else ()):
            view, at = step.leaving[chunk], first + index * exchange.piece
            leaving.append((lengths_at + index, len(view), self._bytes[at : at + len(view)], view))
        for peer, numbers in rnd.takes.items():
            slab, chunks = self.slabs[peer], []
            for chunk in numbers:
                way = (peer, chunk)
                want, index = step.wants[way], rnd.places[way]
                at = first + index * exchange.piece
                chunks.append(
                    (lengths_at + index, want.nbytes, slab.bytes[at : at + want.nbytes], want.room)
                )
                if want.room is None:
                    arrived[way] = slab.tensor(at, want.numel, want.dtype)
            coming.append((peer, self.signals.theirs[peer], slab.words, chunks))
        both = self.signals.with_counters(rnd.sends), self.signals.with_counters(rnd.takes)
        step.known[now] = ways = Ways(leaving, coming, arrived, *both, slots)
        return ways

    def close(self):
        """Let go of all memory; it goes when nobody has it mapped any more."""
        if self.memory is not None:
            self.signals.close()
            os.close(self.memory)
            self.slabs.clear()
            self._readers.clear()
            self.memory = self.mine = self._words = self._bytes = None
