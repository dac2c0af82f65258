"""Every statement of the documentation that the project covers has a place that exists."""

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "docs" / "tools"))
import documented

ITEMS = 677


@pytest.fixture(scope="module")
def items():
    return documented.items()


def test_the_list_is_whole(items):
    assert len({item["id"] for item in items}) == len(items) == ITEMS


def test_each_place_exists_and_can_fail(items):
    faults = {
        f"{item['id']}: {place}": fault
        for item in items
        for place in item["where"]
        if (fault := documented.fault(place))
    }
    assert not faults, "\n".join(f"{where}\n    {fault}" for where, fault in faults.items())


def test_no_place_is_given_to_an_unknown_statement(items):
    assert not set(documented.pending()) - {item["id"] for item in items}


def test_only_what_cannot_run_here_is_excused(items):
    """A statement that a CPU can show isn't satisfied by prose or by a test for a GPU."""
    excused = [
        item["id"]
        for item in items
        if item["runnable"] == "cpu"
        and item["where"]
        and all(place.startswith(documented.MARKS) for place in item["where"])
    ]
    assert not excused


def test_every_example_is_a_cell_of_the_course(items):
    """Each documented example can be run by a reader, in a notebook; tests may show it as well."""
    examples = [item for item in items if item["kind"] == "example"]
    assert len(examples) == 63
    elsewhere = [
        item["id"]
        for item in examples
        if not any(_is_cell(place, item["runnable"]) for place in item["where"])
    ]
    assert not elsewhere, f"not a cell of a notebook: {', '.join(elsewhere)}"


def _is_cell(place, runnable):
    """A cell that runs here; of an example for GPUs, also one that waits for a GPU."""
    if runnable == "gpu":
        place = place.removeprefix("gpu: ")
    return re.match(r"notebooks/\d\d-[\w-]+\.ipynb#.", place) is not None


def test_every_statement_has_a_place(items):
    missing = [item["id"] for item in items if not item["where"]]
    assert not missing, f"without a place: {', '.join(missing)}"
