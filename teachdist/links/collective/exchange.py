"""What the links know of a call, and how large data is cut into segments.

The links see a call as *turns*: one round of one segment. All ranks number the turns alike, so
turn k of one rank is turn k of all.

    segment   0      1      0      1      2      3      2      3        each a piece of every chunk
    round     0      0      1      1      0      0      1      1
    turn      0      1      2      3      4      5      6      7

Large data goes in segments so that it passes through memory that stays in the processor's cache,
and two segments are interleaved so that a rank always has something to do while others write.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

# Bytes that a rank publishes in one turn. Small enough to stay in a processor's cache while
# others read it, large enough to outweigh a turn's overhead. Where every rank gives and takes, none
# can be far ahead of the others: few large turns are better there than room for many. A turn over
# sockets costs more, and what goes through the system leaves the cache anyway.
SEGMENT = 1 << 20
WIDE_SEGMENT = 1 << 21
SOCKET_SEGMENT = 1 << 24
ALIGN = 64
# Room in front for the chunks' lengths, 8 bytes each.
TABLE = 4096
# More turns than any call has; odd, so that calls of one turn each use all slots by turns.
TURNS = (1 << 24) + 1


class Exchange:
    """One kind of collective on the links; `begin` makes it the next call of that kind.

    header: who and what (group, generation, sequence, fingerprint). words: the call in words, with
    its place in the user's program. width: the most chunks that a rank publishes in one turn;
    segment: the most bytes.
    """

    __slots__ = (
        "_deadline",
        "_patient",
        "first",
        "header",
        "piece",
        "segment",
        "table",
        "told",
        "words",
    )

    def __init__(self, header, width, segment=SEGMENT):
        self.header, self.segment = header, segment
        # Bytes for the lengths of the chunks of a turn; the most bytes of one chunk in one turn.
        self.table, self.piece = layout(width, segment)

    def begin(self, sequence, words, patient):
        """Call number `sequence` of the group begins; `patient()` makes its `Deadline`."""
        self.header.sequence = sequence
        self.words = words
        self._patient, self._deadline = patient, None
        # The number of the call's first turn among all turns of the group.
        self.first = sequence * TURNS + 1
        self.told = None  # the peers that have had the words, once there are some

    @property
    def deadline(self):
        """How long the call may wait: made when it first has to, as many calls never wait."""
        if self._deadline is None:
            self._deadline = self._patient()
        return self._deadline


@dataclass(slots=True)
class Turn:
    """One round of one segment. `number` counts from 0 within the call."""

    number: int
    segment: int
    round: int
    rnd: object
    last: bool  # of its segment


@dataclass(slots=True)
class Step:
    """What a rank does in one turn, as far as the links are concerned.

    leaving: {chunk: its bytes}, to be published. wants: {(peer, chunk): Want}, to come.
    known: what the links have worked out for it; a call that comes again has the same steps.
    """

    turn: Turn
    leaving: dict
    wants: dict
    known: object = None


class Want(NamedTuple):
    """A chunk that is to come. room: its place as bytes; None: the answer says where it lies."""

    nbytes: int
    numel: int
    dtype: object
    room: memoryview | None


@lru_cache
def layout(width, segment=SEGMENT):
    """(bytes for lengths, bytes for each chunk) of a turn that publishes `width` chunks.

    A chunk gets a multiple of `ALIGN`, so that every kind of element fits without being cut.
    """
    table = -(-8 * width // ALIGN) * ALIGN
    room = min(segment, segment + TABLE - table)
    piece = room // width // ALIGN * ALIGN
    if piece < ALIGN:
        raise ValueError(f"an algorithm that sends {width} chunks in one round: too many pieces")
    return table, piece


def turns(rounds_of, segments):
    """All turns of a call in order; rounds_of(segment) are a segment's rounds.

    Turns that one segment left over for itself leave gaps in the numbers, the same on all ranks.
    """
    for first in range(0, segments, 2):
        pair = [rounds_of(segment) for segment in range(first, min(first + 2, segments))]
        count = len(pair[0])
        for number in range(count):
            for i, rounds in enumerate(pair):
                turn = first * count + 2 * number + i
                yield Turn(turn, first + i, number, rounds[number], number == count - 1)


def only_turns(rounds):
    """The turns of a call that is not cut: those of segment 0 alone."""
    return tuple(turns(lambda segment: rounds, 1))
