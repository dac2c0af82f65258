"""Numbering the ranks that stay when their number is no power of two."""

import pytest

from teachdist.collectives.powers import (
    distances,
    has_guest,
    is_guest,
    largest_power,
    number_of,
    power_of_two,
    rank_of,
)


def test_distances():
    assert [distances(size) for size in (1, 2, 3, 8, 9)] == [
        [],
        [1],
        [1, 2],
        [1, 2, 4],
        [1, 2, 4, 8],
    ]


@pytest.mark.parametrize("size", range(1, 34))
def test_those_who_stay_are_numbered_without_gaps(size):
    staying = [rank for rank in range(size) if not is_guest(rank, size)]
    assert len(staying) == largest_power(size)
    assert [number_of(rank, size) for rank in staying] == list(range(len(staying)))
    assert [rank_of(number_of(rank, size), size) for rank in staying] == staying
    assert sum(has_guest(rank, size) for rank in staying) == size - len(staying)
    assert all(is_guest(rank + 1, size) for rank in staying if has_guest(rank, size))
    assert power_of_two(size) == (len(staying) == size)
