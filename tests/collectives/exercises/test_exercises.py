"""Every exercise accepts the catalogue's solution, refuses its starter, and says why."""

import pytest

from teachdist.collectives import (
    Recv,
    Reduce,
    Send,
    catalog,
    exercise,
    exercises,
    get,
    prove,
)

VOCABULARY = {"Send": Send, "Recv": Recv, "Reduce": Reduce}


def starter_of(task):
    names = dict(VOCABULARY)
    exec(task.starter, names)
    return names[task.name]


def test_there_are_enough():
    assert len(exercises()) >= 8
    assert exercises()[0] == "linear_broadcast"
    assert exercises()[-1] == "two_level"


@pytest.mark.parametrize("name", exercises())
def test_the_catalogue_solves_it(name):
    task = exercise(name)
    assert task.solution in catalog()[task.op]
    verdict = task.check(get(task.op, task.solution))
    assert verdict, verdict
    assert str(verdict).startswith("passed: proven: ")
    assert "best known there: " in str(verdict)


@pytest.mark.parametrize("name", exercises())
def test_the_starter_does_not(name):
    task = exercise(name)
    verdict = task.check(starter_of(task))
    assert not verdict
    assert str(verdict).startswith("not yet: refuted: ")
    assert task.name in str(verdict)
    assert task.hint
    assert task.task in str(task)


def test_right_but_slow_does_not_pass():
    verdict = exercise("tree_broadcast").check(get("broadcast", "linear"))
    assert not verdict
    assert verdict.proof
    assert "right, but not yet what was asked, because it is slower" in str(verdict)
    assert "'binomial'" in str(verdict)


def test_mending_takes_one_word():
    task = exercise("mend")
    names = dict(VOCABULARY)
    first, second = task.starter.rsplit("Reduce", 1)
    exec(first + "Recv" + second, names)
    assert task.check(names["mend"])
    assert prove(starter_of(task), "all_reduce", ranks=2, chunks=2).kind == "double"


def test_unknown_exercise():
    with pytest.raises(
        ValueError, match=r"there is no 'rings' .did you mean 'ring'.*tree_broadcast"
    ):
        exercise("rings")


def everybody_to_everybody(rank, size):
    others = [(rank + step) % size for step in range(1, size)]
    yield (
        *(Send(peer, rank) for peer in others),
        *(Recv(peer, peer) for peer in reversed(others)),
    )


def all_blocks_at_once(rank, size):
    others = [(rank + step) % size for step in range(1, size)]
    yield (
        *(Send(peer, rank * size + peer) for peer in others),
        *(Recv(peer, peer * size + rank) for peer in reversed(others)),
    )


@pytest.mark.parametrize(
    ("name", "answer", "words"),
    [
        ("ring_all_gather", everybody_to_everybody, "rank 0 sends to rank 2; the task allows its"),
        ("ring_all_gather", get("all_gather", "bruck"), "round 0: rank 0 sends to rank 7"),
        ("ring", get("all_reduce", "two_shot"), "the task allows its right neighbour only"),
        ("pairwise", all_blocks_at_once, "rank 0 sends to ranks 1, 2, 3, 4, 5, 6, 7 at once"),
    ],
)
def test_a_right_answer_that_breaks_the_rule_does_not_pass(name, answer, words):
    verdict = exercise(name).check(answer)
    assert verdict.proof
    assert not verdict
    assert str(verdict).startswith("right, but not what was asked: ")
    assert words in verdict.broken
