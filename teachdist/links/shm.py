"""Shared memory between the ranks of one host: each writes its own, everybody reads.

Every rank has one piece of memory, which the others map:

    +--------------------------+-----------+-----------+-----------+-----------+
    | READY DONE ASLEEP stamps |  slot 0   |  slot 1   |  slot 2   |  slot 3   |
    +--------------------------+-----------+-----------+-----------+-----------+
                                 turn 0, 4.. turn 1, 5.. turn 2, 6.. turn 3, 7..

A turn, on every rank: copy what leaves into the next slot, once, whoever it is for; raise READY to
the turn's number. Wait until the others' READY is there too; read from their slots, adding up right
where the numbers lie; raise DONE. That is all there is, but for one rule: a slot may be written
again only when those who were to read its last turn have raised their DONE to it. With one counter
in place of two, a fast rank overwrites what a slow one still reads.

Numbers of turns grow over all calls of the group, and a call's turns begin at a number that its
sequence number tells. So ranks need not do the same number of turns in a call.

Why so fast: a socket copies every byte twice and wakes a process for every message; here it is
copied once, when published, and mostly nobody sleeps (`signals.py`). Why not lend the caller's own
memory to the others (process_vm_readv): slots stay in the processor's cache, the callers' tensors
don't, and it measured slower.

Safety: each slot says whose turn and which call (fingerprint) it holds, and each chunk its length;
nothing is read before they fit. (Ranks in different calls may also wait for each other without a
message between them; that is seen on the board, by who has waited for a tick.)

Cost: 2 MB per rank and group, taken at the first collective.
"""

import os

import torch

from teachdist.links.errors import Mismatch
from teachdist.links.exchange import SEGMENT, TABLE
from teachdist.links.memory import attach, attach_other, create
from teachdist.links.raw import scratch
from teachdist.links.signals import DONE, READY, signals

PAGE = 4096
SLOTS = 4
SLOT = TABLE + SEGMENT  # the chunks' lengths, then the chunks
SIZE = PAGE + SLOTS * SLOT

# Words of the first page, beside those of signals.py: for each slot the turn and the fingerprint
# of what it holds.
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


class ShmLinks:
    """The links of one rank to peers that share memory with it."""

    def __init__(self, rank):
        self.rank = rank
        self.memory = create(SIZE, "slots")
        self.mine = Slab(attach(self.memory, SIZE))
        self.signals = signals(rank, self.mine.words)
        self._words, self._bytes, self._theirs = (
            self.mine.words,
            self.mine.bytes,
            self.signals.theirs,
        )
        self.slabs = {}
        self._readers = [(0, ())] * SLOTS  # per slot: its last turn, and who was to read it

    def meet(self, peer, pid, memory, bell):
        """Map a peer's memory; OSError when that can't be done."""
        slab = Slab(attach_other(pid, memory, SIZE, "slots"))
        self.signals.meet(peer, slab.words, pid, bell)
        self.slabs[peer] = slab

    def post(self, exchange, turn, rnd, chunks):
        """Publish this turn's chunks, {chunk: bytes}."""
        readers = rnd.sends
        if not readers:
            return
        stamp = exchange.first + turn.number
        slot = stamp % SLOTS
        last, before = self._readers[slot]
        for peer in before:
            if self._theirs[peer][DONE] < last:
                self.signals.wait(peer, DONE, last, exchange.patience)
        words, data, start = self._words, self._bytes, PAGE + slot * SLOT
        length_at, at = start >> 3, start + exchange.table
        for chunk in rnd.published:
            view = chunks[chunk]
            words[length_at] = length = len(view)
            data[at : at + length] = view
            length_at += 1
            at += exchange.piece
        words[STAMPS + 2 * slot] = stamp
        words[STAMPS + 2 * slot + 1] = exchange.header.fingerprint
        self._readers[slot] = (stamp, readers)
        self.signals.raise_to(READY, stamp, readers)

    def take(self, exchange, turn, rnd, wants):
        """Wait for the turn's messages, {(peer, chunk): Want}.

        What has no room of its own is answered, {(peer, chunk): tensor}: it lies in the sender's
        memory and is good until `release`.
        """
        arrived = {}
        stamp = exchange.first + turn.number
        slot = stamp % SLOTS
        length_at = (PAGE + slot * SLOT) >> 3
        start = PAGE + slot * SLOT + exchange.table
        places = rnd.places
        for peer, chunks in rnd.takes.items():
            if self._theirs[peer][READY] < stamp:
                self.signals.wait(peer, READY, stamp, exchange.patience)
            slab = self.slabs[peer]
            words = slab.words
            if (
                words[STAMPS + 2 * slot] != stamp
                or words[STAMPS + 2 * slot + 1] != exchange.header.fingerprint
            ):
                raise Mismatch(f"rank {peer} is in another call", peer)
            for chunk in chunks:
                way = (peer, chunk)
                index = places[way]
                nbytes, numel, dtype, room = wants[way]
                if words[length_at + index] != nbytes:
                    raise Mismatch(
                        f"rank {peer} gives {words[length_at + index]} bytes where this rank "
                        f"expects {nbytes}",
                        peer,
                    )
                at = start + index * exchange.piece
                if room is None:
                    arrived[way] = slab.tensor(at, numel, dtype)
                else:
                    room[:] = slab.bytes[at : at + nbytes]
        return arrived

    def release(self, exchange, turn, rnd):
        """What `take` gave has been read."""
        if rnd.takes:
            self.signals.raise_to(DONE, exchange.first + turn.number, rnd.takes)

    def close(self):
        """Let go of all memory; it goes when nobody has it mapped any more."""
        if self.memory is not None:
            self.signals.close()
            os.close(self.memory)
            self.slabs.clear()
            self.memory = self.mine = self._words = self._bytes = None
