"""Records of ranks, put together, must give the rounds of the algorithm that ran."""

import sys

import pytest
import torch
from recording import record

from teachdist.collectives import get
from teachdist.pictures.recorded import recorded_scene, together
from teachdist.pictures.scene import scene
from teachdist.pictures.still import words
from teachdist.tracing import Trace


def bare(found):
    """The messages of each round without their sizes."""
    return [
        sorted(tuple(sorted((k, str(v)) for k, v in m.items() if k != "bytes")) for m in r["moves"])
        for r in found["rounds"]
    ]


CASES = [
    ("all_reduce", "ring", 4),
    ("all_reduce", "direct", 3),
    ("all_to_all", "bruck", 4),
    ("barrier", "dissemination", 5),
    ("gather", "binomial", 4),
]


@pytest.mark.parametrize(("op", "name", "size"), CASES)
@pytest.mark.parametrize("seen", ["all", "one"])
def test_it_is_the_algorithm_from_all_records_and_from_one(op, name, size, seen):
    sides = record(op, name, size)
    if seen == "one":
        sides = {1: sides[1]}
    found = recorded_scene(sides)
    assert bare(found) == bare(scene(name, op, size))
    assert ("the rest as the algorithm has it" in found["title"]) == (seen == "one")


def test_the_sizes_of_messages_are_those_that_were_recorded():
    found = recorded_scene(record(nbytes=24))
    assert {m["bytes"] for r in found["rounds"] for m in r["moves"]} == {24}
    partly = recorded_scene({0: record()[0]})
    assert [m.get("bytes") for m in partly["rounds"][0]["moves"]] == [8, None, None, 8]


def test_the_root_is_read_from_the_call():
    words = "broadcast(float32[8], src=2)"
    found = recorded_scene({0: record("broadcast", "binomial", 4, words, root=2)[0]})
    assert found["start"] == [{}, {}, {0: [2]}, {}]


def test_times_are_told_only_when_asked_for():
    assert all("note" not in r for r in recorded_scene(record())["rounds"])
    timed = recorded_scene(record(), times=True)
    assert timed["rounds"][0]["note"] == "1000 to 1000 µs"


def test_calls_of_several_ranks_are_paired_by_group_and_number():
    first, second = record(sequence=0), record("barrier", "dissemination", 4, sequence=1)
    traces = [Trace(calls=[first[rank], second[rank]]) for rank in range(4)]
    assert [sorted(sides) for sides in together(traces)] == [[0, 1, 2, 3]] * 2
    assert together(traces) == together(dict(enumerate(traces)))
    assert [sides[0].op for sides in together(traces)] == ["all_reduce", "barrier"]
    assert together(traces[0]) == [{0: first[0]}, {0: second[0]}]


def test_an_algorithm_that_is_in_no_catalogue_is_drawn_from_its_records():
    sides = record()
    for call in sides.values():
        call.algorithm = "mine"
    assert bare(recorded_scene(sides)) == bare(scene("ring", "all_reduce", 4))


def test_values_are_told_only_where_they_were_recorded():
    sides = record(size=2)
    assert all("values" not in r for r in recorded_scene(sides)["rounds"])
    sides[1].rounds[0].values = {0: torch.tensor([3.0, 4.5]), 1: torch.ones(1)}
    found = recorded_scene(sides)
    assert [r.get("values") for r in found["rounds"]] == [{"1": "0: [3, 4.5]  1: [1]"}, None]
    assert "    rank 1 then holds 0: [3, 4.5]  1: [1]" in words(found).splitlines()


@pytest.mark.parametrize("now", ["two_shot", "linear"])
def test_a_name_that_means_something_else_by_now_is_drawn_from_the_records(monkeypatch, now):
    sides = record()
    later = get("all_reduce", now)
    known = sys.modules["teachdist.collectives.catalog"]._ALGORITHMS["all_reduce"]
    monkeypatch.setitem(known, "ring", later)
    found = recorded_scene({0: sides[0]})
    assert "as the algorithm has it" not in found["title"]
    assert len(found["rounds"]) == len(sides[0].rounds)
