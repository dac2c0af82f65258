"""Shared memory, two ranks in one process: what is published is taken, and never too early."""

import os
import threading

import pytest
import torch

from teachdist.backend.execution.plan import plan
from teachdist.backend.execution.script import play, write
from teachdist.links import Deadline, Header, Mismatch, TimedOut
from teachdist.links.collective.exchange import SEGMENT, WIDE_SEGMENT, Exchange, Step, Want, layout
from teachdist.links.collective.shm import SIZE, SLOT, SLOTS, ShmLinks
from teachdist.links.transport.memory import SUPPORTED

pytestmark = pytest.mark.skipif(not SUPPORTED, reason="needs memfd and /proc (Linux)")


@pytest.fixture
def pair():
    ranks = [ShmLinks(rank) for rank in range(2)]
    for me, other in ((0, 1), (1, 0)):
        ranks[me].meet(other, os.getpid(), ranks[other].memory, ranks[other].signals.bell)
    yield ranks
    for rank in ranks:
        rank.close()


class Rank:
    """Plays all_reduce calls on links, one sequence number after the other."""

    def __init__(self, links, algorithm="direct", fingerprint=7, timeout=10.0, segment=SEGMENT):
        self.links, self.rank = links, links.rank
        self.plan = plan("all_reduce", algorithm, self.rank, 2, 0, (0, 0))
        self.exchange = Exchange(Header(1, 0, fingerprint=fingerprint), self.plan.width, segment)
        self.timeout = timeout
        self.sequence = -1

    def sum(self, x):
        self.sequence += 1
        self.exchange.begin(self.sequence, "all_reduce", lambda: Deadline(self.timeout))
        chunks = dict(enumerate(x.chunk(self.plan.chunks)))
        script = write(self.plan.turns, chunks, dict(chunks), None, x.dtype)
        play(script, self, self.links, self.exchange)

    class reducer:  # noqa: N801
        @staticmethod
        def combine(left, right, out):
            torch.add(left, right, out=out)


def both(first, second):
    """Run two functions at once; what they raised."""
    errors = [None, None]

    def run(i, fn):
        try:
            fn()
        except Exception as error:  # noqa: BLE001
            errors[i] = error

    thread = threading.Thread(target=run, args=(1, second))
    thread.start()
    run(0, first)
    thread.join(30)
    assert not thread.is_alive()
    return errors


@pytest.mark.parametrize("segments", [(SEGMENT,), (WIDE_SEGMENT,), (SEGMENT, WIDE_SEGMENT)])
@pytest.mark.parametrize("algorithm", ["direct", "ring", "doubling"])
def test_many_calls_with_one_rank_ahead_of_the_other(pair, algorithm, segments):
    ranks = [Rank(links, algorithm) for links in pair]

    def job(me):
        for k in range(300):
            x = torch.full((64,), float(k + me.rank))
            me.exchange.segment = segments[k // 7 % len(segments)]
            me.sum(x)
            assert x.eq(2 * k + 1).all(), k

    assert both(lambda: job(ranks[0]), lambda: job(ranks[1])) == [None, None]


@pytest.mark.parametrize(
    ("segments", "turns"),
    [
        ([SEGMENT] * SLOTS, SLOTS),
        ([WIDE_SEGMENT] * SLOTS, 2),
        ([WIDE_SEGMENT, WIDE_SEGMENT, SEGMENT], 2),
        ([SEGMENT, SEGMENT, WIDE_SEGMENT], 2),
        ([SEGMENT, SEGMENT, SEGMENT, WIDE_SEGMENT], 3),
    ],
)
def test_a_slot_is_not_written_before_it_has_been_read(pair, segments, turns):
    """One rank publishes without ever taking: it must stop when the slots are full.

    That is what DONE is for; with READY alone it would run on over what the other still reads.
    """
    first = Rank(pair[0], timeout=0.3)
    (turn,) = first.plan.turns
    wants = {(1, 0): Want(8, 2, torch.float32, None)}

    def publish(sequence):
        first.exchange.segment = segments[min(sequence, len(segments) - 1)]
        first.exchange.begin(sequence, "all_reduce", lambda: Deadline(0.3))
        first.links.post(first.exchange, Step(turn, {0: memoryview(b"12345678")}, wants))

    for sequence in range(turns):
        publish(sequence)
    with pytest.raises(TimedOut) as failure:
        publish(turns)
    assert failure.value.ranks == (1,)


def test_another_call_is_noticed(pair):
    ranks = [Rank(pair[0]), Rank(pair[1], fingerprint=8)]
    errors = both(lambda: ranks[0].sum(torch.ones(2)), lambda: ranks[1].sum(torch.ones(2)))
    assert [type(error) for error in errors] == [Mismatch, Mismatch]
    assert {error.rank for error in errors} == {0, 1}


def test_another_length_is_noticed(pair):
    ranks = [Rank(links) for links in pair]
    errors = both(lambda: ranks[0].sum(torch.ones(2)), lambda: ranks[1].sum(torch.ones(3)))
    assert "gives 12 bytes where this rank expects 8" in str(errors[0])
    assert "gives 8 bytes where this rank expects 12" in str(errors[1])


def test_it_stays_within_its_budget():
    assert SIZE <= 4.3e6


@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.parametrize("width", [1, 2, 3, 7, 512, 513, 4000])
def test_chunks_fit_into_a_slot(width, slots):
    table, piece = layout(width, {1: SEGMENT, 2: WIDE_SEGMENT}[slots])
    assert piece % 64 == 0
    assert piece > 0
    assert table >= 8 * width
    assert table + width * piece <= slots * SLOT


def test_too_many_chunks_for_a_slot():
    with pytest.raises(ValueError, match="too many pieces"):
        layout(1 << 20)
