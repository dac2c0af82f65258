"""The header in front of every message, the same on all kinds of links.

    +-------+------+---------+------------+-------+----------+-------+---------+
    | magic | kind | version | generation | group | sequence | round | segment |
    +-------+------+---------+------------+-------+----------+-------+---------+
    | fingerprint | tag | words | chunks | length |   then: words, chunk lengths, payload
    +-------------+-----+-------+--------+--------+

Collectives match by order alone, so a rank that took another branch would pair its broadcast
with the others' all_reduce and compute nonsense. The *fingerprint*, a hash of everything that
must agree (operation, root, reduce op, dtype, shape, algorithm), turns that into an error on
the first message. A hash says only *that* two calls differ; the *words* say what the sender is
doing and at which line, and travel with the first message of a call to each peer.

*sequence* counts the group's collectives from 1, *round* the rounds of one call, *segment* the
pieces of a large one. *generation* counts how often the group has met anew after a failure: what is
left on the wire from before cannot be taken for something new. *chunks* lengths follow the
words, so that a receiver may learn sizes that only the sender knows.
"""

import hashlib
import struct
from dataclasses import dataclass, replace
from functools import lru_cache

COLLECTIVE, POINT_TO_POINT, GOODBYE = 1, 2, 3

_LAYOUT = struct.Struct("<4sBBxxIQQIIQqIIQ")
_MAGIC = b"tdL1"
_VERSION = 1
SIZE = _LAYOUT.size

# Bounds on what a header may claim; anything above is not ours.
MAX_WORDS = 4096
MAX_CHUNKS = 1 << 20
MAX_LENGTH = 1 << 46


@dataclass(slots=True)
class Header:
    """What a message says about itself before its bytes. Lengths are in bytes."""

    group: int
    generation: int
    sequence: int = 0
    round: int = 0
    segment: int = 0
    fingerprint: int = 0
    kind: int = COLLECTIVE
    tag: int = 0
    words: int = 0
    chunks: int = 0
    length: int = 0

    def pack(self):
        """The header's bytes, `SIZE` of them."""
        return _LAYOUT.pack(
            _MAGIC,
            self.kind,
            _VERSION,
            self.generation,
            self.group,
            self.sequence,
            self.round,
            self.segment,
            self.fingerprint,
            self.tag,
            self.words,
            self.chunks,
            self.length,
        )

    @classmethod
    def unpack(cls, data):
        """Read a header; ValueError for bytes that cannot be one."""
        (
            magic,
            kind,
            version,
            generation,
            group,
            sequence,
            round_,
            segment,
            fingerprint,
            tag,
            words,
            chunks,
            length,
        ) = _LAYOUT.unpack(data)
        if magic != _MAGIC or version != _VERSION or kind not in (1, 2, 3):
            raise ValueError(f"not a message of teachdist: it begins with {bytes(data[:8])!r}")
        if words > MAX_WORDS or chunks > MAX_CHUNKS or length > MAX_LENGTH:
            raise ValueError(
                f"a message that claims {words} bytes of words, {chunks} chunks and {length} bytes"
            )
        return cls(
            group,
            generation,
            sequence,
            round_,
            segment,
            fingerprint,
            kind,
            tag,
            words,
            chunks,
            length,
        )

    @classmethod
    @lru_cache(maxsize=256)
    def read(cls, data):
        """Unpack bytes that often come again: the answer is kept, so nobody may change it."""
        return cls.unpack(data)

    def message(self, round_, segment, words, lengths):
        """A message's bytes up to its payload: header, words, the chunks' lengths."""
        count = len(lengths)
        head = _LAYOUT.pack(
            _MAGIC,
            self.kind,
            _VERSION,
            self.generation,
            self.group,
            self.sequence,
            round_,
            segment,
            self.fingerprint,
            self.tag,
            len(words),
            count,
            sum(lengths),
        )
        return head + words + struct.pack(f"<{count}Q", *lengths)

    def sized(self, words, chunks, length):
        """This header in front of `words` bytes of words and `chunks` chunks."""
        return replace(self, words=words, chunks=chunks, length=length)

    def at(self, round_, segment):
        """This header for one turn."""
        return replace(self, round=round_, segment=segment)


def number_of(text):
    """A 64-bit number for a name or a description, the same in every process."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
