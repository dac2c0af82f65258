"""The table must tell every rank's state without colour, and everything that the text tells."""

import re
from types import SimpleNamespace

import pytest

from teachdist.pictures.whereabouts import table


def at(rank, state, text, seconds=None):
    return SimpleNamespace(rank=rank, state=state, text=text, seconds=seconds)


ROWS = [
    at(0, "busy", "cell 3, line 2: dist.barrier()", 4.2),
    at(1, "idle", "idle"),
    at(2, "dead", "its process ended (killed, or out of memory)"),
    at(3, "silent", "busy in compiled code, or stopped: does not answer"),
]


def told(picture):
    return re.findall(r"<text[^>]*>([^<]*)</text>", picture)


def test_all_that_the_text_tells_is_in_the_picture():
    words = told(table(ROWS, "rank 0 waits for ranks 1, 2 and 3"))
    for row in ROWS:
        assert {f"rank {row.rank}", row.state, row.text} <= set(words)
    assert "4 s" in words
    assert words[-1] == "rank 0 waits for ranks 1, 2 and 3"


@pytest.mark.parametrize("text", ["<script>alert(1)</script>", "f(x) " * 60])
def test_any_line_of_code_fits_and_is_only_text(text):
    picture = table([at(0, "busy", text, 1)])
    assert "<script>" not in picture
    assert all(len(line) < 110 for line in told(picture))


def test_it_grows_with_the_ranks():
    few, many = (table([at(r, "idle", "idle") for r in range(n)]) for n in (2, 8))
    heights = [float(re.search(r'height="([\d.]+)"', one)[1]) for one in (few, many)]
    assert heights[1] == heights[0] + 6 * 26
