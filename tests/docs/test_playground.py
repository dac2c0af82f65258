"""The playground's Python side, outside the browser."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "docs" / "assets"))
import playground

from teachdist.collectives import catalog, exercise

FREE = ("", "all_reduce", "size")


def ask(call, *given):
    return json.loads(playground.answer(call, json.dumps(given)))


def test_the_tasks_are_free_play_and_every_exercise():
    names = [task["name"] for task in ask("tasks")]
    assert names[0] == ""
    assert "ring" in names
    assert ask("collectives")["barrier"].startswith("nobody leaves")


def test_what_free_play_begins_with_is_right_and_has_a_price():
    assert ask("check", playground.FREE, *FREE)["text"].startswith("proven: 'ring'")
    stepped = ask("step", playground.FREE, *FREE, 3)
    assert len(stepped["scene"]["rounds"]) == 4
    priced = ask("price", playground.FREE, *FREE, 4)
    assert "your ring" in priced["text"]
    assert priced["svg"].startswith("<svg")
    assert "your ring" not in catalog()["all_reduce"]


def test_a_wrong_answer_comes_with_its_film():
    wrong = playground.FREE.replace("Reduce(left", "Recv(left")
    for call, more in (("check", ()), ("step", (4,)), ("price", (4,))):
        answer = ask(call, wrong, *FREE, *more)
        assert not answer["good"]
        assert "loses the contribution" in answer["scene"]["fault"]["sentence"]


@pytest.mark.parametrize("name", [task["name"] for task in playground.tasks() if task["name"]])
def test_what_an_exercise_begins_with_does_not_pass_and_says_why(name):
    task = exercise(name)
    answer = ask("check", task.starter, name, "", "")
    assert not answer["good"]
    assert answer["text"]


def test_an_exercise_is_passed_by_its_solution():
    code = (
        "def answer(rank, size, *, root):\n"
        "    if rank == root:\n"
        "        yield tuple(Send(peer, 0) for peer in range(size) if peer != root)\n"
        "    else:\n"
        "        yield Recv(root, 0)\n"
    )
    answer = ask("check", code, "linear_broadcast", "", "")
    assert answer["good"]
    assert answer["text"].startswith("passed")


@pytest.mark.parametrize(
    ("code", "chunks", "says"),
    [
        ("def f(rank size): pass", "1", "line 1: "),
        ("x = 1\ny = z\n", "1", "line 2: NameError: name 'z' is not defined"),
        ("x = 1", "1", "define a generator function"),
        ("def f(rank, size):\n    return 3", "1", "contain `yield`"),
        (
            "def f(rank, size):\n    while True:\n        pass\n    yield",
            "1",
            "does a loop never end",
        ),
        (playground.FREE, "size +", "chunks: "),
        (playground.FREE, "ranks", "chunks: name 'ranks'"),
    ],
)
def test_code_that_cannot_be_used_is_told_with_its_line(code, chunks, says):
    answer = ask("check", code, "", "all_reduce", chunks)
    assert not answer["good"]
    assert says in answer["text"]


def test_what_the_code_prints_is_shown():
    answer = ask("check", "print('hello')\n" + playground.FREE, *FREE)
    assert answer["text"].startswith("hello\nproven")
