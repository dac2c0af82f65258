"""The table of definitions, spelled out for three ranks."""

import pytest

from teachdist.collectives import DEFINITIONS, Recv, Reduce, Send
from teachdist.collectives.schedule import definition_of, everybody, members

# op -> what ranks 0, 1, 2 hold at the start and must hold at the end, root 1, k = 2 chunks.
THREE_RANKS = {
    "all_reduce": (
        [{0: {0}, 1: {0}}, {0: {1}, 1: {1}}, {0: {2}, 1: {2}}],
        [{0: {0, 1, 2}, 1: {0, 1, 2}}] * 3,
    ),
    "reduce": (
        [{0: {0}, 1: {0}}, {0: {1}, 1: {1}}, {0: {2}, 1: {2}}],
        [{}, {0: {0, 1, 2}, 1: {0, 1, 2}}, {}],
    ),
    "broadcast": ([{}, {0: {1}, 1: {1}}, {}], [{0: {1}, 1: {1}}] * 3),
    "all_gather": ([{0: {0}}, {1: {1}}, {2: {2}}], [{0: {0}, 1: {1}, 2: {2}}] * 3),
    "reduce_scatter": (
        [{0: {rank}, 1: {rank}, 2: {rank}} for rank in range(3)],
        [{0: {0, 1, 2}}, {1: {0, 1, 2}}, {2: {0, 1, 2}}],
    ),
    "gather": ([{0: {0}}, {1: {1}}, {2: {2}}], [{}, {0: {0}, 1: {1}, 2: {2}}, {}]),
    "scatter": ([{}, {0: {1}, 1: {1}, 2: {1}}, {}], [{0: {1}}, {1: {1}}, {2: {1}}]),
    "all_to_all": (
        [{0: {0}, 1: {0}, 2: {0}}, {3: {1}, 4: {1}, 5: {1}}, {6: {2}, 7: {2}, 8: {2}}],
        [{0: {0}, 3: {1}, 6: {2}}, {1: {0}, 4: {1}, 7: {2}}, {2: {0}, 5: {1}, 8: {2}}],
    ),
    "barrier": ([{0: {0}}, {0: {1}}, {0: {2}}], [{0: {0, 1, 2}}] * 3),
}


def as_sets(holding):
    return {chunk: set(members(bits)) for chunk, bits in holding.items()}


def test_the_table_is_complete():
    assert set(THREE_RANKS) == set(DEFINITIONS)


@pytest.mark.parametrize("op", THREE_RANKS)
def test_definition(op):
    definition = definition_of(op)
    chunks = definition.chunk_count(3, k=2)
    start, end = THREE_RANKS[op]
    assert [as_sets(definition.start(rank, 3, 1, chunks)) for rank in range(3)] == start
    assert [as_sets(definition.end(rank, 3, 1, chunks)) for rank in range(3)] == end
    assert definition.meaning


def test_number_of_chunks():
    free = ("all_reduce", "reduce", "broadcast")
    assert all(definition_of(op).chunk_count(5, 7) == 7 for op in free)
    per_rank = ("all_gather", "reduce_scatter", "gather", "scatter")
    assert all(definition_of(op).chunk_count(5, 7) == 5 for op in per_rank)
    assert definition_of("all_to_all").chunk_count(5) == 25
    assert definition_of("barrier").chunk_count(5) == 1


def test_actions_are_positional():
    assert Send(1, 2) == Send(to=1, chunk=2)
    assert Recv(1, 2) == Recv(source=1, chunk=2)
    assert Reduce(1, 2) == Reduce(source=1, chunk=2)


def test_sets_as_bits():
    assert members(everybody(4)) == [0, 1, 2, 3]
    assert members(1 << 1000 | 1) == [0, 1000]
    assert members(0) == []
