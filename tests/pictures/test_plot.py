"""Curves of predicted time, and their picture."""

import xml.etree.ElementTree as ET

import pytest

from teachdist.collectives import catalog, cost, lower_bound
from teachdist.collectives.model.cost import as_topology
from teachdist.pictures import curves, plot_cost

NS = {"s": "http://www.w3.org/2000/svg"}
SIZES = [1, 1000, 10**6]


def test_curves_over_bytes():
    found = curves("all_reduce", nbytes=SIZES, ranks=6)
    assert [curve.name for curve in found] == [*catalog()["all_reduce"], "lower bound"]
    ring = next(curve for curve in found if curve.name == "ring")
    assert ring.points == [(n, cost("ring", "all_reduce", n, 6).seconds) for n in SIZES]
    topology = as_topology(None)
    assert found[-1].points == [
        (n, lower_bound("all_reduce", n, 6, topology).seconds) for n in SIZES
    ]


def test_curves_over_ranks_leave_out_what_is_not_served():
    found = curves("all_gather", nbytes=1000, ranks=[2, 3, 4], algorithms=["doubling"])
    assert [x for x, _ in found[0].points] == [2, 4]


def test_picture_names_every_curve():
    root = ET.fromstring(plot_cost("all_reduce", nbytes=[2**k for k in range(0, 25, 4)]))
    words = [element.text for element in root.iterfind(".//s:text", NS)]
    for name in (*catalog()["all_reduce"], "lower bound", "bytes", "256 KiB"):
        assert name in words
    assert root.find("s:title", NS).text == "all_reduce: predicted time, 8 ranks, loopback"


def test_zero_has_no_place_on_a_logarithmic_axis():
    ET.fromstring(plot_cost("all_reduce", nbytes=[0, 1000], ranks=3))
    ET.fromstring(plot_cost("barrier", ranks=[1, 2, 4]))
    with pytest.raises(ValueError, match="no time above 0"):
        plot_cost("all_reduce", nbytes=1000, ranks=[1])


def test_one_of_the_two_must_vary():
    for wrong in ({}, {"nbytes": [1], "ranks": [2]}):
        with pytest.raises(ValueError, match="either several nbytes or several ranks"):
            curves("all_reduce", **wrong)
