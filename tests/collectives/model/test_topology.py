"""Topologies: placement, fitting to measurements, presets."""

import pytest

from teachdist.collectives import PRESETS, Topology
from teachdist.collectives.model.topology import fit


def test_hosts_are_filled_one_after_the_other():
    assert Topology(1, 1).hosts(3) == (0, 0, 0)
    assert Topology(1, 1, ranks_per_host=2).hosts(5) == (0, 0, 1, 1, 2)


def test_links_between_hosts_cost_the_same_unless_given():
    topology = Topology(2.0, 3.0, alpha_between=5.0)
    assert (topology.alpha_between, topology.beta_between) == (5.0, 3.0)


def test_fit_finds_the_line_again():
    alpha, beta = 2e-5, 3e-9
    samples = [(size, alpha + size * beta) for size in (1, 100, 10_000, 1_000_000)]
    assert fit(samples) == pytest.approx((alpha, beta))


def test_fit_listens_to_small_messages():
    # Large messages are 1 % off; the latency of small ones must not drown in that.
    samples = [(1, 1e-5), (10, 1e-5), (10**9, 1.01), (2 * 10**9, 2.0)]
    assert fit(samples)[0] == pytest.approx(1e-5, rel=1e-3)


def test_measured():
    inside = [(0, 1e-6), (1000, 2e-6)]
    between = [(0, 1e-5), (1000, 3e-5)]
    topology = Topology.measured(inside, between, gamma=1e-10, ranks_per_host=4)
    assert (topology.alpha, topology.alpha_between) == pytest.approx((1e-6, 1e-5))
    assert (topology.beta, topology.beta_between) == pytest.approx((1e-9, 2e-8))
    assert topology.hosts(5) == (0, 0, 0, 0, 1)


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_ordered_sensibly(name):
    topology = Topology.preset(name)
    assert topology.alpha <= topology.alpha_between
    assert topology.beta <= topology.beta_between


def test_wrong_arguments():
    with pytest.raises(ValueError, match="beta: seconds can't be negative, got -1"):
        Topology(1, -1)
    with pytest.raises(ValueError, match="ranks_per_host: must be at least 1, got 0"):
        Topology(1, 1, ranks_per_host=0)
    with pytest.raises(ValueError, match="measurements at two sizes at least"):
        fit([(5, 1.0), (5, 2.0)])
