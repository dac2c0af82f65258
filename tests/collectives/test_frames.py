"""The film shows what happens, round by round, and where a wrong algorithm breaks."""

import json
from itertools import pairwise

import pytest

from teachdist.collectives import (
    DEFINITIONS,
    Recv,
    Reduce,
    Send,
    catalog,
    describe_rounds,
    frames,
)
from teachdist.collectives.frames import short_list


def test_direct_all_reduce_of_two():
    assert frames("direct", 2, "all_reduce") == [
        {
            "round": 0,
            "messages": [
                {"source": 0, "to": 1, "chunks": [0], "reduce": True},
                {"source": 1, "to": 0, "chunks": [0], "reduce": True},
            ],
            "before": [{"0": [0]}, {"0": [1]}],
            "after": [{"0": [0, 1]}, {"0": [0, 1]}],
            "fault": None,
        }
    ]


@pytest.mark.parametrize("op", DEFINITIONS)
def test_films_are_plain_json_and_end_as_defined(op):
    for name in catalog()[op]:
        film = frames(name, 4, op, root=0)
        assert json.loads(json.dumps(film)) == film
        for earlier, later in pairwise(film):
            assert earlier["after"] == later["before"]
        chunks = len(film[0]["before"][0])
        for rank, held in enumerate(film[-1]["after"]):
            wanted = DEFINITIONS[op].end(rank, 4, 0, chunks)
            for chunk, contributors in wanted.items():
                assert sum(1 << one for one in held[str(chunk)]) == contributors


def test_a_fault_ends_the_film():
    def twice(rank, size):
        peer = 1 - rank
        yield Send(peer, 0), Reduce(peer, 0)
        yield Send(peer, 0), Reduce(peer, 0)

    film = frames(twice, 2, "all_reduce")
    assert [frame["after"] for frame in film] == [[{"0": [0, 1]}, {"0": [0, 1]}], None]
    assert len(film[1]["messages"]) == 2
    assert film[1]["fault"].startswith("round 1: rank 0 adds chunk 0 from rank 1, and so counts")


def test_a_fault_at_the_end_has_a_frame_of_its_own():
    def lazy(rank, size):
        yield Send(1, 0) if rank == 0 else Reduce(0, 0)

    film = frames(lazy, 2, "all_reduce")
    assert [len(frame["messages"]) for frame in film] == [1, 0]
    assert film[1]["fault"].startswith("at the end, after 1 round: rank 0 has chunk 0 without")


def test_described_in_words():
    assert describe_rounds("ring", 2, "all_reduce") == [
        "round 0: 0 -> 1 adds chunk 1; 1 -> 0 adds chunk 0",
        "round 1: 0 -> 1 gives chunk 0; 1 -> 0 gives chunk 1",
    ]
    assert describe_rounds("binomial", 4, "scatter")[0] == "round 0: 0 -> 2 gives chunks 2-3"


def test_a_fault_in_words():
    def deaf(rank, size):
        if rank == 0:
            yield Recv(1, 0)

    (line,) = describe_rounds(deaf, 2, "all_gather")
    assert line.startswith("wrong: round 0: rank 0 waits for chunk 0 from rank 1 for ever: ")
    assert line.endswith("rank 1 is done after 0 rounds")


def test_short_list():
    assert short_list([3, 0, 1, 2, 6]) == "0-3,6"
    assert short_list([]) == ""
