"""Predicted beside measured: what counts as measured, and how it is told."""

import pytest
from recording import record

from teachdist.collectives import cost
from teachdist.tracing import Trace, compare


def late(sides, rank, began):
    """Let one rank come later than the others."""
    sides[rank].began = began
    return sides


def traces(sides):
    return {rank: Trace(calls=[call]) for rank, call in sides.items()}


def test_waiting_for_the_last_rank_is_not_measured():
    sides = record()  # from 1.0, 6 rounds of a millisecond
    (row,) = compare(traces(late(sides, 2, 1.004))).rows
    assert row.measured == pytest.approx(0.002)
    assert row.predicted == cost("ring", "all_reduce", 64, 4)
    assert row.ratio == pytest.approx(0.002 / row.predicted.seconds)


def test_clocks_of_different_hosts_are_not_mixed():
    sides = late(record(), 2, 1.004)
    for call in sides.values():
        call.hosts = (0, 0, 1, 1)
    sides[3].began, sides[3].ended = 501.0, 501.005
    (row,) = compare(traces(sides)).rows
    assert row.measured == pytest.approx(0.002)


def test_one_rank_alone_is_enough():
    (row,) = compare(Trace(calls=[record()[1]])).rows
    assert row.measured == pytest.approx(0.006)


def test_the_topology_may_be_another_one():
    (row,) = compare(traces(record()), "shared_memory").rows
    assert row.predicted == cost("ring", "all_reduce", 64, 4, "shared_memory")


def test_as_a_table():
    first, second = record(), record("barrier", "dissemination", 4, "barrier() at x.py:3", 1)
    both = [Trace(calls=[first[rank], second[rank]]) for rank in range(4)]
    lines = [" ".join(line.split()) for line in str(compare(both)).splitlines()]
    assert lines == [
        "call algorithm bytes predicted measured",
        "all_reduce(float32[8]) ring 64 bytes 180 us 6 ms x 33",
        "barrier() dissemination 64 bytes 60 us 2 ms x 33",
    ]
    assert str(compare([])) == "no collective was called"
