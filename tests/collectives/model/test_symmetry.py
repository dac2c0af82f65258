"""What is said of all ranks by symmetry is what they really do, and costs what it really costs."""

import dataclasses

import pytest

from teachdist.collectives import Topology, catalog, cost, get
from teachdist.collectives.model.clocks import summary
from teachdist.collectives.model.symmetry import kind_of, renamed

ENTRIES = [
    (op, name) for op, names in catalog().items() for name in names if get(op, name).symmetry
]
UNEVEN = Topology(1e-6, 1e-10, 1e-10, 3e-5, 2e-9, ranks_per_host=3)


@pytest.mark.parametrize(("op", "name"), ENTRIES)
def test_all_ranks_do_as_rank_0_does(op, name):
    algorithm = get(op, name)
    tried = 0
    for size in filter(algorithm.serves, range(1, 20)):
        kind = kind_of(algorithm, size)
        if kind is None:
            continue
        first = [summary(actions) for actions in algorithm.rounds(0, size)]
        for rank in range(size):
            rounds = [summary(actions) for actions in algorithm.rounds(rank, size)]
            assert [(dict(one.sends), one.reduced) for one in rounds] == [
                (dict(one.sends), one.reduced)
                for one in (renamed(pattern, kind, rank, size) for pattern in first)
            ]
            tried += 1
    assert tried > 10


@pytest.mark.parametrize(("op", "name"), ENTRIES)
def test_the_short_way_gives_the_same_price(op, name):
    algorithm = get(op, name)
    plain = dataclasses.replace(algorithm, symmetry=None)
    for topology in (UNEVEN, Topology(1e-5, 1e-9, 1e-10)):
        for size in filter(algorithm.serves, (2, 7, 8, 16, 30)):
            short = cost(algorithm, nbytes=100_000, ranks=size, topology=topology)
            long = cost(plain, nbytes=100_000, ranks=size, topology=topology)
            assert short.seconds == pytest.approx(long.seconds, rel=1e-7)
