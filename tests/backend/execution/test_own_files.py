"""Files that TEACHDIST_ALGORITHMS names: executed once, and what is wrong with them is said."""

import os
import sys

import pytest

from teachdist.backend.execution.own_files import load_own_files
from teachdist.collectives import Refused, catalog, get

RIGHT = """
import teachdist
from teachdist.collectives import Reduce, Send

@teachdist.algorithm("all_reduce", "{name}")
def swap(rank, size):
    others = [(rank + step) % size for step in range(1, size)]
    yield (*(Send(peer, 0) for peer in others), *(Reduce(peer, 0) for peer in others))
"""
WRONG = """
import teachdist

@teachdist.algorithm("all_reduce")
def nothing(rank, size):
    yield ()
"""


@pytest.mark.usefixtures("scratch")
def test_each_file_is_executed_once(tmp_path, monkeypatch):
    files = [tmp_path / "one.py", tmp_path / "two.py"]
    for file in files:
        file.write_text(RIGHT.format(name=f"own_{file.stem}"))
    monkeypatch.setenv("TEACHDIST_ALGORITHMS", os.pathsep.join(map(str, files)))
    modules = set(sys.modules)
    load_own_files()
    made = get("all_reduce", "own_one")
    assert get("all_reduce", "own_two").serves(7)
    load_own_files()
    assert get("all_reduce", "own_one") is made
    assert set(sys.modules) == modules


def test_a_file_that_does_not_exist(tmp_path, monkeypatch):
    monkeypatch.setenv("TEACHDIST_ALGORITHMS", str(tmp_path / "none.py"))
    with pytest.raises(ValueError, match=r"TEACHDIST_ALGORITHMS=.*none.py: there is no file"):
        load_own_files()


def test_a_wrong_algorithm_is_refused_and_the_file_named(tmp_path, monkeypatch):
    (tmp_path / "wrong.py").write_text(WRONG)
    monkeypatch.setenv("TEACHDIST_ALGORITHMS", str(tmp_path / "wrong.py"))
    for _ in range(2):  # it isn't remembered as done
        with pytest.raises(Refused, match="'nothing' is no all_reduce: with 2 ranks") as refused:
            load_own_files()
        (note,) = refused.value.__notes__
        assert "wrong.py, which TEACHDIST_ALGORITHMS names" in note
    assert "nothing" not in catalog()["all_reduce"]


def test_nothing_named_is_nothing_to_do(monkeypatch):
    monkeypatch.delenv("TEACHDIST_ALGORITHMS", raising=False)
    load_own_files()
