"""Simulated clocks against the formulas of the literature, which are written out here again."""

from math import ceil, log2

import pytest

from teachdist.collectives import Recv, Send, Topology, catalog, cost, get, lower_bound

A, B, G = 3e-5, 1e-9, 3e-10
FLAT = Topology(A, B, G)
N = 1 << 20
ENTRIES = [(op, name) for op, names in catalog().items() for name in names]


def levels(p):
    return ceil(log2(p))


# (op, name) -> the formula as the literature has it; those below hold for every p.
FOR_EVERY_P = {
    ("all_reduce", "ring"): lambda p: (
        2 * (p - 1) * A + 2 * N * (p - 1) / p * B + N * (p - 1) / p * G
    ),
    ("broadcast", "binomial"): lambda p: levels(p) * (A + N * B),
    ("broadcast", "scatter_ring"): lambda p: (levels(p) + p - 1) * A + 2 * N * (p - 1) / p * B,
    ("broadcast", "chain"): lambda p: (p + 8 - 2) * (A + N / 8 * B),
    ("all_gather", "bruck"): lambda p: levels(p) * A + N * (p - 1) / p * B,
    ("all_to_all", "pairwise"): lambda p: (p - 1) * A + N * (p - 1) / p * B,
    ("barrier", "dissemination"): lambda p: levels(p) * A,
}
FOR_POWERS_OF_TWO = {
    ("all_reduce", "doubling"): lambda p: log2(p) * (A + N * B + N * G),
    ("all_reduce", "rabenseifner"): lambda p: (
        2 * log2(p) * A + 2 * N * (p - 1) / p * B + N * (p - 1) / p * G
    ),
    ("all_to_all", "bruck"): lambda p: log2(p) * A + N / 2 * log2(p) * B,
    ("reduce", "binomial"): lambda p: log2(p) * (A + N * B + N * G),
    ("reduce_scatter", "halving"): lambda p: log2(p) * A + N * (p - 1) / p * (B + G),
}


@pytest.mark.parametrize("case", FOR_EVERY_P, ids=" ".join)
@pytest.mark.parametrize("p", [2, 3, 4, 5, 7, 8, 12, 16, 31, 64])
def test_agrees_with_the_literature(case, p):
    op, name = case
    assert cost(name, op, N, p, FLAT).seconds == pytest.approx(FOR_EVERY_P[case](p), rel=1e-9)


@pytest.mark.parametrize("case", FOR_POWERS_OF_TWO, ids=" ".join)
@pytest.mark.parametrize("p", [2, 4, 8, 16, 64])
def test_agrees_with_the_literature_for_powers_of_two(case, p):
    op, name = case
    wanted = FOR_POWERS_OF_TWO[case](p)
    assert cost(name, op, N, p, FLAT).seconds == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize(("m", "q"), [(1, 4), (4, 1), (2, 3), (4, 4), (8, 2), (3, 5)])
def test_two_levels_agree_with_the_literature(m, q):
    a1, b1, a2, b2 = 2e-6, 1e-11, 2e-5, 1e-9
    topology = Topology(a1, b1, G, a2, b2, ranks_per_host=m)
    p = m * q
    wanted = (
        2 * (m - 1) * a1
        + 2 * N * (m - 1) / m * b1
        + 2 * (q - 1) * a2
        + 2 * (N / m) * (q - 1) / q * b2
        + N * (p - 1) / p * G
    )
    assert cost("two_level", "all_reduce", N, p, topology).seconds == pytest.approx(
        wanted, rel=1e-9
    )


@pytest.mark.parametrize(("op", "name"), ENTRIES)
def test_agrees_with_its_own_formula(op, name):
    algorithm = get(op, name)
    for p in filter(algorithm.serves, range(1, 41)):
        for nbytes in (0, 1000, 1 << 24):
            priced = cost(algorithm, nbytes=nbytes, ranks=p, topology=FLAT)
            assert priced.how == "simulated"
            assert priced.latency + priced.transfer + priced.combining == pytest.approx(
                priced.seconds, rel=1e-9
            )
            if algorithm.formula.startswith("<="):
                assert priced.seconds <= priced.formula * (1 + 1e-9), (p, nbytes)
            else:
                assert priced.seconds == pytest.approx(priced.formula, rel=1e-9), (p, nbytes)


@pytest.mark.parametrize(("op", "name"), ENTRIES)
def test_nothing_beats_the_lower_bound(op, name):
    topology = Topology(A, B, G, 10 * A, 10 * B, ranks_per_host=3)
    for p in filter(get(op, name).serves, (2, 5, 8, 11)):
        for nbytes in (0, 5000, N):
            bound = lower_bound(op, nbytes, p, topology)
            assert cost(name, op, nbytes, p, topology).seconds >= bound.seconds * (1 - 1e-9)


def test_lower_bound_of_all_reduce():
    bound = lower_bound("all_reduce", N, 12, FLAT)
    assert bound == pytest.approx((4 * A, 2 * N * 11 / 12 * B, N * 11 / 12 * G))
    assert lower_bound("all_reduce", N, 1, FLAT) == (0, 0, 0)


def test_messages_through_one_port_take_turns():
    def both_to_zero(rank, size, *, root):
        if rank:
            yield Send(0, rank)
        else:
            yield Recv(1, 1), Recv(2, 2)

    assert cost(both_to_zero, "gather", 300, 3, FLAT).seconds == pytest.approx(2 * (A + 100 * B))


def test_a_slow_link_between_hosts_slows_only_those_who_wait_for_it():
    topology = Topology(1.0, 0.0, 0.0, 100.0, 0.0, ranks_per_host=2)
    assert cost("binomial", "broadcast", 0, 4, topology).seconds == 101.0
    assert cost("binomial", "broadcast", 0, 4, topology, hosts=(0, 0, 0, 0)).seconds == 2.0
    assert cost("binomial", "broadcast", 0, 4, topology, hosts=(0, 1, 0, 1)).seconds == 101.0


def test_thousands_of_ranks():
    wanted = 2 * 4095 * A + 2 * N * 4095 / 4096 * B + N * 4095 / 4096 * G
    assert cost("ring", "all_reduce", N, 4096, FLAT).seconds == pytest.approx(wanted)
    # With hosts, every round waits for the slow link.
    hosts = Topology(A, B, G, 10 * A, 10 * B, ranks_per_host=8)
    priced = cost("ring", "all_reduce", N, 4096, hosts)
    assert priced.how == "simulated"
    slow = 2 * 4095 * 10 * A + 2 * N * 4095 / 4096 * 10 * B + N * 4095 / 4096 * G
    assert priced.seconds == pytest.approx(slow, rel=1e-2)


def test_too_much_to_simulate_falls_back_to_the_formula():
    priced = cost("two_level", "all_reduce", N, 4096, "gpu_cluster")
    assert priced.how == "formula"
    assert priced.seconds == priced.formula
    assert priced.latency is None

    def talkative(rank, size):
        for _ in range(1000):
            yield Send((rank + 1) % size, 0), Recv((rank - 1) % size, 0)

    with pytest.raises(ValueError, match=r"4096 ranks are more than .* give it a formula="):
        cost(talkative, "all_reduce", N, 4096)


def test_text():
    text = str(cost("ring", "all_reduce", nbytes=1 << 20, ranks=4, topology="loopback"))
    assert text.startswith("'ring' all_reduce of 1 MiB on 4 ranks (loopback): 1.43 ms = ")
    assert text.endswith("formula: 2 (p-1) α + 2 n (p-1)/p β + n (p-1)/p γ = 1.43 ms")


def test_the_words_of_a_price_say_if_the_algorithm_is_wrong():
    def nothing(rank, size):
        yield ()

    price = cost(nothing, "all_reduce", ranks=4)
    assert "Not that it were of use: refuted: 'nothing'" in str(price)
    right = cost(get("all_reduce", "direct").generator, "all_reduce", ranks=4)
    assert "refuted" not in str(right)


def test_wrong_arguments():
    with pytest.raises(ValueError, match="nbytes: must be at least 0, got -1"):
        cost("ring", "all_reduce", -1)
    with pytest.raises(ValueError, match="no preset 'moon'; there are loopback"):
        cost("ring", "all_reduce", 1, 4, "moon")
    with pytest.raises(ValueError, match="hosts must name a host for each of 4 ranks, got 2"):
        cost("ring", "all_reduce", 1, 4, hosts=(0, 1))
    with pytest.raises(ValueError, match="root must be in"):
        cost("binomial", "broadcast", 1, 4, root=4)
