"""Charts: well-formed SVG that shows the numbers of the record."""

import xml.etree.ElementTree as ET

import pytest
from recording import record

from teachdist.pictures import charts


def texts(svg):
    return [node.text for node in ET.fromstring(svg).iter() if node.tag.endswith("text")]


@pytest.mark.parametrize("chart", [charts.timeline, charts.bytes_per_rank, charts.matrix])
def test_each_rank_is_named(chart):
    shown = texts(chart([record(size=3)]))
    assert {"rank 0", "rank 1", "rank 2"} <= set(shown)


def test_traffic_is_what_the_senders_recorded():
    moved = charts.traffic([record(size=4, nbytes=8), record(size=4, nbytes=100, sequence=1)])
    assert moved == {(rank, (rank + 1) % 4): 6 * 108 for rank in range(4)}
    assert "648 B" in texts(charts.matrix([record(nbytes=108)]))
    assert "648 B sent" in texts(charts.bytes_per_rank([record(nbytes=108)]))
    assert charts.words([record(size=2, nbytes=8)]) == "0 -> 1: 16 B\n1 -> 0: 16 B"


def test_the_timeline_spans_the_calls():
    assert "6 ms" in texts(charts.timeline([record(size=4)]))


@pytest.mark.parametrize("chart", [charts.timeline, charts.matrix])
def test_an_empty_trace_says_what_to_do(chart):
    with pytest.raises(ValueError, match=r"with teachdist\.trace"):
        chart([])
