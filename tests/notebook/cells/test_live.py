import pytest

from teachdist.notebook.cells import live


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
