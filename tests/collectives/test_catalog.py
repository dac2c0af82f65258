"""The catalogue against plain arithmetic: every algorithm run on numbers, at every root."""

import pytest

from teachdist.collectives import DEFINITIONS, Recv, Reduce, Send, catalog, get

ENTRIES = [(op, name) for op, names in catalog().items() for name in names]


def run(algorithm, size, root):
    """Execute all ranks on bit sets and return what each holds; the oracle is the definition."""
    definition = DEFINITIONS[algorithm.op]
    chunks = algorithm.chunks(size)
    held = [definition.start(rank, size, root, chunks) for rank in range(size)]
    rounds = [algorithm.rounds(rank, size, root) for rank in range(size)]
    for number in range(max(map(len, rounds))):
        wire = {}
        for rank, mine in enumerate(rounds):
            for action in mine[number] if number < len(mine) else ():
                if isinstance(action, Send):
                    wire[rank, action.to, action.chunk] = held[rank][action.chunk]
        for rank, mine in enumerate(rounds):
            for action in mine[number] if number < len(mine) else ():
                if isinstance(action, Recv):
                    held[rank][action.chunk] = wire.pop((action.source, rank, action.chunk))
                elif isinstance(action, Reduce):
                    came = wire.pop((action.source, rank, action.chunk))
                    assert definition.union or not came & held[rank][action.chunk]
                    held[rank][action.chunk] |= came
        assert not wire
    return held


@pytest.mark.parametrize(("op", "name"), ENTRIES)
def test_ends_as_defined(op, name):
    algorithm = get(op, name)
    definition = DEFINITIONS[op]
    for size in filter(algorithm.serves, range(1, 17)):
        chunks = algorithm.chunks(size)
        for root in range(size) if definition.rooted else (0,):
            held = run(algorithm, size, root)
            for rank in range(size):
                for chunk, wanted in definition.end(rank, size, root, chunks).items():
                    assert held[rank][chunk] == wanted, (size, root, rank, chunk)


def test_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"did you mean 'ring'.*there are .*ring"):
        get("all_reduce", "rong")


def test_unknown_op_lists_the_known_ones():
    with pytest.raises(ValueError, match="all_reduce, reduce, broadcast"):
        get("allreduce", "ring")
