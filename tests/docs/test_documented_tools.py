"""The judge of places itself: it must find what is wrong."""

import json

import documented
import place
import pytest


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.setattr(documented, "ROOT", tmp_path)

    def cell(kind, source, tags, outputs=()):
        made = {"cell_type": kind, "source": source, "metadata": {"tags": tags}}
        return made | ({"outputs": list(outputs)} if kind == "code" else {})

    cells = [
        cell("code", ["assert 1 == 1"], ["asserts"]),
        cell("code", ["print(1)"], ["prints"], [{"output_type": "stream", "text": ["1"]}]),
        cell("code", ["x = 1"], ["idle"]),
        cell("code", ["print(id(x))"], ["ignored", "nbval-ignore-output"], [{}]),
        cell("markdown", ["words"], ["words"]),
    ]
    (tmp_path / "x.ipynb").write_text(json.dumps({"cells": cells}))
    (tmp_path / "test_x.py").write_text(
        "def test_a(): ...\nclass TestB:\n    def test_c(self): ...\ndef helper(): ...\n"
    )
    (tmp_path / "page.md").write_text("# Head: of it\n\n## Named {#name}\n\n```\n# code\n```\n")
    return tmp_path


@pytest.mark.parametrize(
    "place",
    [
        "x.ipynb#asserts",
        "x.ipynb#prints",
        "read only: x.ipynb#words",
        "test_x.py::test_a",
        "test_x.py::test_a[gloo-2]",
        "test_x.py::TestB::test_c",
        "gpu: test_x.py::test_a",
        "page.md",
        "page.md#head-of-it",
        "read only: page.md#name",
    ],
)
def test_good_places(project, place):
    assert documented.fault(place) is None


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("y.ipynb#asserts", "no file"),
        ("x.ipynb#nowhere", "no cell"),
        ("x.ipynb#idle", "neither asserts"),
        ("x.ipynb#ignored", "neither asserts"),
        ("x.ipynb#words", "neither asserts"),
        ("test_x.py::test_z", "no test"),
        ("test_x.py::helper", "no test"),
        ("test_x.py", "expected"),
        ("page.md#code", "no heading"),
        ("page.md#elsewhere", "no heading"),
    ],
)
def test_bad_places(project, place, says):
    assert says in documented.fault(place)


def test_folding_sets_and_replaces_places_and_leaves_the_rest():
    item = '[[item]]\nid = "a.b"\nsays = "x"\n\n'
    text = (
        f'# head\n\n{item}[[item]]\nid = "c"\nwhere = "old"\n\n[[note]]\nid = "a.b"\nwhere = "n"\n'
    )
    folded = place.fold(text, {"a.b": ["p#q"], "c": ["old", "new"]})
    assert folded == (
        '# head\n\n[[item]]\nid = "a.b"\nsays = "x"\nwhere = "p#q"\n\n'
        '[[item]]\nid = "c"\nwhere = ["old", "new"]\n\n[[note]]\nid = "a.b"\nwhere = "n"\n'
    )
    assert place.fold(folded, {"a.b": ["p#q"], "c": ["old", "new"]}) == folded
