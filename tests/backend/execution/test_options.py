"""Who chooses an algorithm: the nearest. And what is said of names that don't exist."""

import pytest

from teachdist.backend.execution.options import Options, chosen_by_user, use
from teachdist.collectives import get


def test_the_nearest_wins(monkeypatch):
    options = Options(all_reduce="ring")
    assert chosen_by_user("all_reduce", Options()) is None
    monkeypatch.setenv("TEACHDIST_ALL_REDUCE", "doubling")
    assert chosen_by_user("all_reduce", Options()) == "doubling"
    assert chosen_by_user("all_reduce", options) == "ring"
    assert chosen_by_user("broadcast", options) is None
    with use(all_reduce="direct"):
        assert chosen_by_user("all_reduce", options) == "direct"
        with use(all_reduce="linear", broadcast="chain"):
            assert chosen_by_user("all_reduce", options) == "linear"
            assert chosen_by_user("broadcast", options) == "chain"
        assert chosen_by_user("all_reduce", options) == "direct"
    assert chosen_by_user("all_reduce", options) == "ring"


def test_an_algorithm_itself_serves_as_its_name():
    with use(all_reduce=get("all_reduce", "ring")):
        assert chosen_by_user("all_reduce", Options()) == "ring"


def test_an_empty_variable_chooses_nothing(monkeypatch):
    monkeypatch.setenv("TEACHDIST_ALL_REDUCE", "")
    assert chosen_by_user("all_reduce", Options()) is None


def test_a_name_that_does_not_exist(monkeypatch):
    monkeypatch.setenv("TEACHDIST_ALL_REDUCE", "rign")
    with pytest.raises(ValueError, match=r"TEACHDIST_ALL_REDUCE=rign: .*did you mean 'ring'.*"):
        chosen_by_user("all_reduce", Options())
    with pytest.raises(ValueError, match=r"has no algorithm 'rign'"):
        Options(all_reduce="rign")
    with pytest.raises(ValueError, match=r"registered on every rank: .* %%ranks --here"):
        use(all_reduce="mine").__enter__()
    with pytest.raises(ValueError, match=r"allreduce= is not a collective; known: all_reduce"):
        use(allreduce="ring").__enter__()
