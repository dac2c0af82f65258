"""Results on file, and the report on a class, whatever is in the folder."""

import json

import pytest

from teachdist.collectives import Recv, Send, exercise, get, report


def empty(rank, size, *, root):
    yield ()


def hasty(rank, size, *, root):
    if size > 1:
        yield Send((rank + 1) % size, 0), Recv((rank - 1) % size, 0)


def test_a_learner_tries_until_it_passes(tmp_path):
    file = tmp_path / "ada.json"
    task = exercise("linear_broadcast")
    for answer in (empty, hasty, get("broadcast", "linear"), empty):
        task.check(answer, save=file)
    kept = json.loads(file.read_text())
    entry = kept["exercises"]["linear_broadcast"]
    assert kept["learner"] == "ada"
    assert entry["passed"] is True
    assert entry["attempts"] == 4
    assert entry["faults"] == ["missing", "unheld", "missing"]
    assert entry["seconds"] == entry["target_seconds"]
    assert [path.name for path in tmp_path.iterdir()] == ["ada.json"]


def test_report_on_a_class(tmp_path):
    broadcast, barrier = exercise("linear_broadcast"), exercise("barrier")
    broadcast.check(get("broadcast", "linear"), save=tmp_path / "a.json", learner="Ada")
    barrier.check(get("barrier", "dissemination"), save=tmp_path / "a.json")
    broadcast.check(empty, save=tmp_path / "b.json", learner="Bob")
    found = report(tmp_path)
    assert list(found.learners) == ["Ada", "Bob"]
    lines = str(found).splitlines()
    assert lines[0].split() == ["learner", "linear_broadcast", "barrier", "passed"]
    assert lines[1].split() == ["Ada", "yes", "(1)", "yes", "(1)", "2", "of", "13"]
    assert lines[2].split() == ["Bob", "no", "(1)", "-", "0", "of", "13"]
    assert "linear_broadcast: 'missing' was the counter-example 1 time" in lines


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "no JSON"),
        ("[]", "no record of exercises"),
        ('{"format": "other"}', "no record of exercises"),
        ('{"format": "teachdist exercises 1", "exercises": {"ring": 5}}', "aren't written as"),
        ("[" * 100_000, "no JSON"),
        (" " * 1_000_001, "more than 1000000 bytes"),
    ],
)
def test_other_files_are_named_and_left_out(tmp_path, content, reason):
    (tmp_path / "odd.json").write_text(content)
    exercise("linear_broadcast").check(empty, save=tmp_path / "ok.json")
    found = report(tmp_path)
    assert list(found.learners) == ["ok"]
    assert reason in found.unreadable["odd.json"]
    assert "odd.json left out: " in str(found)


def test_a_damaged_file_is_not_overwritten(tmp_path):
    file = tmp_path / "mine.json"
    file.write_text("something else")
    with pytest.raises(ValueError, match="no JSON"):
        exercise("linear_broadcast").check(empty, save=file)
    assert file.read_text() == "something else"


def test_two_files_of_one_name_are_kept_apart(tmp_path):
    for name in ("one", "two"):
        exercise("linear_broadcast").check(empty, save=tmp_path / f"{name}.json", learner="Eve")
    assert list(report(tmp_path).learners) == ["Eve", "Eve (two.json)"]


def test_nothing_there(tmp_path):
    assert str(report(tmp_path)) == "no results"
    with pytest.raises(ValueError, match="is no folder"):
        report(tmp_path / "missing")
