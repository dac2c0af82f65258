"""Scenes: what a player is given must lead from the definition's start to its end."""

import json

import pytest

from teachdist.collectives import Reduce, Send, catalog, get
from teachdist.pictures.scene import moves_of, scene
from teachdist.pictures.still import after

EVERY = [(op, name) for op, names in catalog().items() for name in names]


def served(op, name):
    return next(size for size in (5, 4, 8) if get(op, name).serves(size))


@pytest.mark.parametrize(("op", "name"), EVERY)
def test_replaying_the_messages_reaches_what_the_definition_asks_for(op, name):
    size = served(op, name)
    found = json.loads(json.dumps(scene(name, op, size)))
    for rank, (held, wanted) in enumerate(zip(after(found), found["end"], strict=True)):
        for chunk, who in wanted.items():
            assert held[int(chunk)] == who, (rank, chunk)
    assert found["fault"] is None


def test_the_root_and_the_hosts_are_part_of_the_scene():
    assert scene("binomial", "broadcast", 4, root=2)["start"] == [{}, {}, {0: [2]}, {}]
    two = scene("two_level", "all_reduce", 4, hosts=(0, 0, 1, 1))
    assert (two["layout"], two["columns"], two["hosts"]) == ("grid", 2, [0, 0, 1, 1])


def test_neighbours_stand_in_a_ring_and_trees_in_a_line():
    assert scene("ring", "all_reduce", 4)["layout"] == "ring"
    assert scene("binomial", "broadcast", 8)["layout"] == "line"
    assert scene("ring", "all_reduce", 4, columns=2)["layout"] == "grid"


def lopsided(rank, size):
    yield Send((rank + 1) % size, 0), Reduce((rank - 1) % size, 0)
    if rank == 0:
        yield (Send(1, 0),)


def test_a_wrong_algorithm_is_shown_up_to_its_fault():
    found = scene(lopsided, "all_reduce", 3)
    assert len(found["rounds"]) == 2
    assert (found["fault"]["round"], found["fault"]["rank"]) == (1, 0)
    assert (
        "rank 0 sends chunk 0 to rank 1, which receives that in round 0"
        in found["fault"]["sentence"]
    )
    assert found["rounds"][1]["moves"] == [
        {"from": 0, "to": 1, "chunks": [0], "adds": False, "lost": True}
    ]


def raising(rank, size):
    yield Send((rank + 1) % size, 0), Reduce((rank - 1) % size, 0)
    raise KeyError("lost")


def test_a_round_that_could_not_begin_has_no_messages():
    found = scene(raising, "all_reduce", 3)
    assert len(found["rounds"]) == 1
    assert "raises KeyError" in found["fault"]["sentence"]


def test_chunks_for_one_peer_are_one_message_unless_they_are_taken_differently():
    actions = [(Send(1, 2), Send(1, 0)), (Reduce(0, 0), Reduce(0, 2))]
    assert moves_of(actions) == [{"from": 0, "to": 1, "chunks": [0, 2], "adds": True}]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"ranks": 0}, "1 to 32"),
        ({"ranks": 33}, "1 to 32"),
        ({"layout": "star"}, "ring, line, grid"),
        ({"columns": 0}, "at least 1"),
    ],
)
def test_bad_arguments_are_named(given, says):
    with pytest.raises(ValueError, match=says):
        scene("ring", "all_reduce", **given)
