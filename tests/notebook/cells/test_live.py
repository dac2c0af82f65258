import pytest

from teachdist.notebook.cells import live
from teachdist.notebook.cells.status import RankStatus, Status


class FakeTask:
    def __init__(self, rank, items, done):
        self.rank, self.items, self.done = rank, items, done


def test_so_far():
    asked = [
        FakeTask(0, [("stdout", "a\nb\n")], True),
        FakeTask(1, [("stderr", "50%\r70%")], False),
    ]
    assert live.so_far(asked) == "[rank 0] a\n         b\n[rank 1] 70%\nrank 1 at work ..."


def test_only_the_last_lines_of_much():
    text = "".join(f"{n}\n" for n in range(100))
    lines = live.so_far([FakeTask(0, [("stdout", text)], True)]).splitlines()
    assert len(lines) == live.LINES
    assert lines[-1].strip() == "99"


def test_bar():
    assert live.bar(1, 4, width=8) == "[##......] 1 of 4"


@pytest.mark.parametrize("enabled", [True, False])
def test_live_shows_and_clears(monkeypatch, capsys, enabled):
    cleared = []
    monkeypatch.setattr("IPython.display.clear_output", lambda wait: cleared.append(wait))
    monkeypatch.setattr(live, "FIRST_AFTER", 0)
    monkeypatch.setattr(live, "EVERY", 0)
    picture = live.Live(enabled)
    picture.show("one")
    picture.show("one")
    picture.show("two")
    picture.end()
    picture.end()
    assert capsys.readouterr().out == ("one\ntwo\n" if enabled else "")
    assert len(cleared) == (3 if enabled else 0)


def test_a_quick_cell_shows_nothing(capsys):
    picture = live.Live(True)
    picture.show("flicker")
    picture.end()
    assert capsys.readouterr().out == ""


def test_nobody_looks_outside_a_notebook():
    assert not live.is_live()


class Answered:
    """A question that was answered at once."""

    done = True

    def __init__(self, verdict):
        self.verdict = verdict

    def answer(self):
        status = Status([RankStatus(0, "busy", "cell 1, line 2: f()", 3.2)])
        status.verdict = self.verdict
        return status


def test_a_cell_that_waits_says_why(monkeypatch, capsys):
    for name in ("FIRST_AFTER", "EVERY", "WHY_AFTER", "WHY_EVERY"):
        monkeypatch.setattr(live, name, 0)
    monkeypatch.setattr("IPython.display.clear_output", lambda wait: None)
    verdicts = iter(["", "rank 1 is not there", "rank 2 is not there"])
    picture = live.Live(True, inquire=lambda: Answered(next(verdicts)))
    at_work = [FakeTask(0, [], False)]
    said = []
    for _ in range(6):  # asks, hears, asks ...
        picture.tasks(at_work)
        said.append(capsys.readouterr().out)
    assert said[0] == "rank 0 at work ...\n"
    assert (
        "rank 0 at work ...\n[rank 0] cell 1, line 2: f()  (for 3 s)\nrank 1 is not there\n" in said
    )
    assert (
        "rank 0 at work ...\n[rank 0] cell 1, line 2: f()  (for 3 s)\nrank 2 is not there\n" in said
    )
    assert live.so_far([FakeTask(0, [("stdout", "x" * 10_000_000)], True)]).endswith("x")
