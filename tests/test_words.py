"""Words for ranks, sizes, times and tables."""

import pytest

from teachdist.notebook.cells.outputs import parse_ranks
from teachdist.words import in_bytes, in_seconds, ranks_label, ranks_words, table


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        ([3], "rank 3"),
        ([0, 1], "ranks 0 and 1"),
        ([2, 0, 1], "ranks 0-2"),
        ([0, 1, 2, 5], "ranks 0-2 and 5"),
        ([0, 2, 3, 7, 8, 9], "ranks 0, 2, 3 and 7-9"),
    ],
)
def test_ranks_in_a_sentence(ranks, words):
    assert ranks_words(ranks) == words


@pytest.mark.parametrize(
    ("ranks", "label"),
    [
        ([3], "rank 3"),
        ([0, 1, 2, 3], "ranks 0-3"),
        ([5, 0, 1], "ranks 0-1,5"),
        ([0, 2], "ranks 0,2"),
    ],
)
def test_a_label_of_ranks_can_be_read_back(ranks, label):
    assert ranks_label(ranks) == label
    assert parse_ranks(label.split()[1]) == sorted(ranks)


def test_sizes_and_times_have_the_unit_that_fits():
    assert [in_bytes(n) for n in (1, 1023, 1536, 1 << 20, 3 << 30)] == [
        "1 bytes",
        "1023 bytes",
        "1.5 KiB",
        "1 MiB",
        "3 GiB",
    ]
    assert [in_seconds(t) for t in (2, 0.00143, 2e-6, 0)] == ["2 s", "1.43 ms", "2 us", "0 us"]


def test_a_table_aligns_its_columns_and_its_texts_of_several_lines():
    assert table([("a", "b"), ("long", "c\nd")]) == "a     b\nlong  c\n      d"
