"""Headers: what goes in comes out, and nothing that claims too much gets past."""

import random

import pytest

from teachdist.links.transport.header import (
    MAX_CHUNKS,
    MAX_LENGTH,
    MAX_WORDS,
    POINT_TO_POINT,
    SIZE,
    Header,
    number_of,
)


def test_a_message_begins_with_its_header():
    header = Header(5, 2, 77, fingerprint=number_of("x"), kind=POINT_TO_POINT, tag=-3)
    data = header.message(4, 9, b"words", (8, 16))
    read = Header.unpack(data[:SIZE])
    assert (read.group, read.generation, read.sequence, read.tag) == (5, 2, 77, -3)
    assert (read.round, read.segment, read.words, read.chunks, read.length) == (4, 9, 5, 2, 24)
    assert data[SIZE : SIZE + 5] == b"words"
    assert len(data) == SIZE + 5 + 16


def test_headers_that_come_again_are_kept_but_not_for_ever():
    many = [Header(1, 0, tag=tag).pack() for tag in range(1000)]
    for data in (*many, *many):
        assert Header.read(data) == Header.unpack(data)
    assert Header.read(many[-1]) is Header.read(bytes(many[-1]))
    assert Header.read.cache_info().currsize < len(many)


def test_a_header_survives_the_wire():
    header = Header(1, 2, 3, 4, 5, 6, POINT_TO_POINT, 7, 8, 9, 10)
    assert Header.unpack(header.pack()) == header


@pytest.mark.parametrize(
    "claim",
    [{"words": MAX_WORDS + 1}, {"chunks": MAX_CHUNKS + 1}, {"length": MAX_LENGTH + 1}],
    ids=str,
)
def test_a_claim_beyond_the_bounds_is_refused(claim):
    with pytest.raises(ValueError, match="claims"):
        Header.unpack(Header(1, 0, **claim).pack())


def test_random_bytes_are_no_header():
    chance = random.Random(0)
    for _ in range(1000):
        with pytest.raises(ValueError, match="not a message"):
            Header.unpack(chance.randbytes(SIZE))
