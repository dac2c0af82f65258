"""Shared memory: a chunk is written once whoever reads it, and a round costs one alpha."""

import dataclasses

import pytest

from teachdist.collectives import (
    Recv,
    Reduce,
    Send,
    Topology,
    catalog,
    choose,
    cost,
    get,
    lower_bound,
)

A, B, G = 2e-5, 2e-10, 2.5e-10
N = 1 << 20
SHARED = Topology(A, B, G, shared=True)
ENTRIES = [(op, name) for op, names in catalog().items() for name in names]
SIZES = [1, 2, 3, 4, 5, 8, 12, 16]

# What the head of shared_memory.py says, for any number of ranks
CLOSED = {
    ("all_reduce", "direct"): lambda p: A + N * B + (p - 1) * N * G,
    ("all_reduce", "two_shot"): lambda p: 2 * A + N * (2 * p - 1) / p * B + N * (p - 1) / p * G,
    ("all_reduce", "ring"): lambda p: (
        2 * (p - 1) * A + 3 * N * (p - 1) / p * B + N * (p - 1) / p * G
    ),
    ("broadcast", "linear"): lambda p: A + N * B,
    ("reduce", "linear"): lambda p: max(A + N * B, A + (p - 1) * N * G),
    ("all_gather", "direct"): lambda p: A + N * B,
    ("reduce_scatter", "direct"): lambda p: A + N * (p - 1) / p * (B + G),
    ("all_to_all", "direct"): lambda p: A + 2 * N * (p - 1) / p * B,
    ("barrier", "direct"): lambda p: A,
}


@pytest.mark.parametrize("case", CLOSED, ids=" ".join)
@pytest.mark.parametrize("p", SIZES[1:])
def test_closed_forms(case, p):
    op, name = case
    assert cost(name, op, N, p, SHARED).seconds == pytest.approx(CLOSED[case](p), rel=1e-9)


@pytest.mark.parametrize(("op", "name"), ENTRIES)
@pytest.mark.parametrize("ranks_per_host", [None, 3])
def test_nothing_beats_the_lower_bound(op, name, ranks_per_host):
    topology = Topology(A, B, G, 10 * A, 10 * B, ranks_per_host, shared=True)
    for p in filter(get(op, name).serves, SIZES):
        for nbytes in (0, 1000, N):
            bound = lower_bound(op, nbytes, p, topology)
            assert cost(name, op, nbytes, p, topology).seconds >= bound.seconds * (1 - 1e-9)


@pytest.mark.parametrize(("op", "name"), ENTRIES)
def test_without_bytes_it_is_never_dearer_than_messages_through_ports(op, name):
    for p in filter(get(op, name).serves, SIZES):
        priced = cost(name, op, 0, p, SHARED)
        assert priced.seconds <= priced.formula * (1 + 1e-9)


@pytest.mark.parametrize(("op", "name"), [e for e in ENTRIES if get(*e).symmetry])
@pytest.mark.parametrize("ranks_per_host", [None, 3, 1])
def test_the_short_way_gives_the_same_price(op, name, ranks_per_host):
    algorithm = get(op, name)
    plain = dataclasses.replace(algorithm, symmetry=None)
    topology = Topology(A, B, G, 10 * A, 10 * B, ranks_per_host, shared=True)
    for p in filter(algorithm.serves, (2, 7, 8, 16)):
        short = cost(algorithm, nbytes=100_000, ranks=p, topology=topology)
        long = cost(plain, nbytes=100_000, ranks=p, topology=topology)
        assert short.seconds == pytest.approx(long.seconds, rel=1e-7)


@pytest.mark.parametrize(("op", "name"), ENTRIES)
def test_between_hosts_nothing_is_shared(op, name):
    alone = Topology(A, B, G, 3 * A, 3 * B, ranks_per_host=1, shared=True)
    ports = dataclasses.replace(alone, shared=False)
    for p in filter(get(op, name).serves, (2, 5, 8)):
        assert cost(name, op, N, p, alone).seconds == cost(name, op, N, p, ports).seconds


def test_on_two_hosts_each_link_has_its_price():
    """Rank 0 writes once for rank 1, and sends twice to the other host."""
    topology = Topology(1.0, 0.1, 0.0, 100.0, 0.0, ranks_per_host=2, shared=True)
    assert cost("linear", "broadcast", 10, 4, topology).seconds == 1.0 + 1.0 + 200.0
    assert cost("linear", "broadcast", 10, 4, topology, hosts=(0, 0, 0, 0)).seconds == 2.0


def test_a_reader_follows_the_writer_and_combines_where_it_lies():
    def back_and_forth(rank, size):
        yield Send(1, 0) if rank == 0 else Reduce(0, 0)
        yield Recv(1, 0) if rank == 0 else Send(0, 0)

    fast = Topology(1.0, 0.5, 0.25, shared=True)
    priced = cost(back_and_forth, "all_reduce", 8, 2, fast)
    assert priced.seconds == (1 + 4) + (1 + 4)
    slow = Topology(1.0, 0.5, 1.0, shared=True)
    priced = cost(back_and_forth, "all_reduce", 8, 2, slow)
    assert priced.seconds == (1 + 8) + (1 + 4)
    assert (priced.latency, priced.transfer, priced.combining) == (2, 4, 8)


def test_the_bound_of_all_reduce_is_met_by_direct_when_combining_is_free():
    free = dataclasses.replace(SHARED, gamma=0.0)
    bound = lower_bound("all_reduce", N, 8, free)
    assert bound == (A, N * B, 0)
    assert cost("direct", "all_reduce", N, 8, free).seconds == A + N * B


def test_formulas_are_told_to_be_without_shared_memory_where_there_is_some():
    for topology, told in ((SHARED, True), ("ethernet", False), ("loopback", False)):
        text = str(cost("ring", "all_reduce", N, 4, topology))
        assert ("formula without shared memory: 2 (p-1) α" in text) == told
        assert ("formula: 2 (p-1) α" in text) != told


CHOSEN = {
    "all_reduce": ("direct", "two_shot"),
    "reduce": ("linear", "two_shot"),
    "broadcast": ("linear", "linear"),
    "all_gather": ("direct", "direct"),
    "reduce_scatter": ("direct", "direct"),
    "gather": ("linear", "linear"),
    "scatter": ("linear", "linear"),
    "all_to_all": ("direct", "direct"),
    "barrier": ("direct", "direct"),
}


@pytest.mark.parametrize("op", CHOSEN)
@pytest.mark.parametrize("size", [4, 5])
def test_on_one_host_few_rounds_are_chosen(op, size):
    names = [choose(op, nbytes, size, "shared_memory").name for nbytes in (8, 1 << 24)]
    assert tuple(names) == CHOSEN[op]


def test_two_ranks_that_share_memory_never_need_more_than_two_rounds():
    for op in CHOSEN:
        for nbytes in (8, 1 << 16, 1 << 24):
            chosen = get(op, choose(op, nbytes, 2, "shared_memory").name)
            assert len(chosen.rounds(0, 2)) <= 2
