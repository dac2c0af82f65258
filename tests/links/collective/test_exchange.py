"""Turns: every round of every segment once, in an order that never waits for itself."""

import pytest

from teachdist.links.collective.exchange import turns


@pytest.mark.parametrize("rounds", [1, 2, 6])
@pytest.mark.parametrize("segments", [1, 2, 3, 8, 9])
def test_every_round_of_every_segment_comes_once(rounds, segments):
    names = list(range(rounds))
    found = list(turns(lambda segment: names, segments))
    assert {(t.segment, t.round) for t in found} == {
        (s, r) for s in range(segments) for r in range(rounds)
    }
    assert len(found) == rounds * segments
    assert all(t.rnd == names[t.round] for t in found)


@pytest.mark.parametrize("segments", [1, 2, 5])
def test_numbers_grow_and_rounds_of_a_segment_keep_their_order(segments):
    found = list(turns(lambda segment: "abc", segments))
    numbers = [t.number for t in found]
    assert numbers == sorted(set(numbers))
    for segment in range(segments):
        assert [t.round for t in found if t.segment == segment] == [0, 1, 2]


def test_a_turn_has_the_same_number_whatever_the_number_of_segments():
    """Ranks may disagree about how many there are: who has less to move has fewer."""
    few = {(t.segment, t.round): t.number for t in turns(lambda segment: "ab", 3)}
    many = {(t.segment, t.round): t.number for t in turns(lambda segment: "ab", 8)}
    assert few.items() <= many.items()


def test_the_last_round_of_each_segment_is_marked():
    found = list(turns(lambda segment: "abc", 3))
    assert [(t.segment, t.round) for t in found if t.last] == [(0, 2), (1, 2), (2, 2)]
