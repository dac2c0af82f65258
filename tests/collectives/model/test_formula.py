"""Formulas as one writes them on paper."""

from teachdist.collectives import get
from teachdist.collectives.model.formula import pretty


def test_greek_letters_and_no_stars():
    assert pretty("2*(p-1)*a + 2*n*(p-1)/p*b + n*(p-1)/p*g") == (
        "2 (p-1) α + 2 n (p-1)/p β + n (p-1)/p γ"
    )
    assert pretty("<= ceil(lg(p))*(a2 + n*b2)") == "at most ⌈lg p⌉ (α₂ + n β₂)"
    assert pretty("fold*(2*a)") == "fold (2 α)"


def test_every_built_in_algorithm_states_its_cost():
    assert pretty(get("all_reduce", "doubling").formula).startswith("lg P (α + n β + n γ)")
