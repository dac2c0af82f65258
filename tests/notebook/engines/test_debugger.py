import bdb

import pytest
from clusters import RANKS, needs_release

from teachdist.notebook import RanksError
from teachdist.notebook.engines import debugger


def test_commands_are_said_and_answered(capsys):
    def inner():
        x = 41
        debugger.scripted_breakpoint("p x + 1", "up", "p y")
        return x

    y = "outer"
    assert inner() == 41
    said = capsys.readouterr().out
    assert "(Pdb) p x + 1\n42\n" in said
    assert f"(Pdb) p y\n{y!r}\n" in said


def test_without_commands_it_shows_the_local_names(capsys):
    def inner():
        x = 41
        debugger.scripted_breakpoint()
        return x

    assert inner() == 41
    assert "{'x': 41}" in capsys.readouterr().out


def test_quit_ends_it():
    def inner():
        debugger.scripted_breakpoint("q")
        return 1

    with pytest.raises(bdb.BdbQuit):
        inner()


def test_on_ranks(cluster):
    cell = "def f(x):\n    breakpoint('p x')\n    return x\nf(rank // 2)"
    asked = cluster.execute(cell)
    cluster.wait(asked)
    for task in asked:
        text = "".join(content for kind, content in task.items if kind == "stdout")
        assert text == f"> line 3 of f: return x\n(Pdb) p x\n{task.rank // 2}\n"


@needs_release
def test_quit_on_one_rank_releases_the_others(cluster):
    asked = cluster.execute("if rank == 0:\n    breakpoint('q')\n    1\ndist.barrier()")
    with pytest.raises(RanksError) as caught:
        cluster.wait(asked)
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("rank 0: BdbQuit")
    assert lines[1].startswith(f"ranks 1-{RANKS - 1}: released from barrier()")
