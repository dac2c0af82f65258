import concurrent.futures
from types import SimpleNamespace

import pytest
from ipyparallel.error import RemoteError

from teachdist.notebook.engines import requests
from teachdist.notebook.errors import RanksError


def message(kind, date="", **content):
    return {"header": {"msg_type": kind, "date": date}, "content": content}


def a_task(rank=0):
    task = requests.Task(rank)
    future = concurrent.futures.Future()
    future.iopub_callbacks = []
    future.output = concurrent.futures.Future()
    future.output.set_result(None)
    task.begin(future)
    return task, future.iopub_callbacks[0]


def test_items_keep_the_order_in_which_they_came():
    task, say = a_task()
    say(message("stream", name="stdout", text="a"))
    say(message("stream", name="stdout", text="b\n"))
    say(message("display_data", data={"text/plain": "c"}))
    say(message("stream", name="stdout", text="d"))
    say(message("execute_result", data={"text/plain": "e"}))
    assert [kind for kind, _ in task.items] == ["stdout", "display", "stdout", "result"]
    assert task.items[0] == ("stdout", "ab\n")


def test_pieces_are_put_together_once_and_in_order():
    """A print that is flushed at each word sends a message for each."""
    task, say = a_task()
    for _ in range(20_000):
        say(message("stream", name="stdout", text="word "))
    assert task.items == [("stdout", "word " * 20_000)]


def test_an_interrupt_says_where_each_rank_was():
    (stopped, _), (done, _), (silent, _) = a_task(0), a_task(1), a_task(2)
    stopped.future.set_result(RemoteError("KeyboardInterrupt", "cell 3, line 2: f()", "", None))
    done.future.set_result(None)
    error = requests.interrupted([stopped, done, silent])
    assert isinstance(error, KeyboardInterrupt)
    assert error._render_traceback_() == [
        "interrupted",
        "rank 0: stopped at cell 3, line 2: f()",
        "rank 1: done",
        "rank 2: no answer, not even to the interrupt; next: %ranks restart, or Cluster.restart()",
    ]


def test_displays_are_updated_and_cleared():
    task, say = a_task()
    say(message("display_data", data={"text/plain": "1"}, transient={"display_id": "x"}))
    say(message("update_display_data", data={"text/plain": "2"}, transient={"display_id": "x"}))
    assert task.items[0][1]["data"] == {"text/plain": "2"}
    say(message("clear_output", wait=True))
    assert task.items == []


def test_wait_interrupts_the_others_when_one_fails(monkeypatch):
    monkeypatch.setattr(requests, "GRACE", 0.1)
    (bad, _), (slow, say) = a_task(0), a_task(1)
    say(message("status", execution_state="busy"))
    interrupted = []

    def interrupt(ranks):
        interrupted.extend(ranks)
        slow.future.set_result(KeyboardInterrupt())

    bad.future.set_result(ValueError("x"))
    assert requests.wait([bad, slow], interrupt) == []
    assert interrupted == [1]


def test_a_rank_that_does_not_react_is_stuck(monkeypatch):
    monkeypatch.setattr(requests, "GRACE", 0.1)
    monkeypatch.setattr(requests, "PATIENCE", 0.3)
    (bad, _), (deaf, say) = a_task(0), a_task(1)
    say(message("status", execution_state="busy"))
    bad.future.set_result(ValueError("x"))
    stuck = requests.wait([bad, deaf], lambda _: None)
    assert stuck == [1]
    with pytest.raises(RanksError, match="rank 1: no answer"):
        requests.raise_failures([bad, deaf], stuck)


def test_a_rank_that_has_not_begun_is_interrupted_when_it_begins(monkeypatch):
    late, say = a_task(0)
    looks, interrupts = [], []

    def look(*_, **__):
        looks.append(late.begun)
        if len(looks) == 3:
            say(message("status", execution_state="busy"))

    def interrupt(ranks):
        interrupts.append((ranks, late.begun))
        late.future.set_result(KeyboardInterrupt())

    def control_c(_):
        raise KeyboardInterrupt

    futures = SimpleNamespace(wait=look, FIRST_EXCEPTION="FIRST_EXCEPTION")
    monkeypatch.setattr(requests, "concurrent", SimpleNamespace(futures=futures))
    with pytest.raises(KeyboardInterrupt):
        requests.wait([late], interrupt, on_progress=control_c)
    assert interrupts == [([0], True)]
