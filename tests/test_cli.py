"""The command line: what it answers, and with which exit status."""

import re

import pytest

from teachdist import cli


@pytest.mark.parametrize("command", ["", *cli.COMMANDS])
def test_help_is_there(command, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main([command, "--help"] if command else ["--help"])
    assert ended.value.code == 0
    assert "usage: teachdist" in capsys.readouterr().out


def test_an_unknown_command_is_refused(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["dance"])
    assert ended.value.code == 2
    assert "dance" in capsys.readouterr().err


def test_prove_proves(capsys):
    assert cli.main(["prove", "ring", "--op", "all_reduce", "--ranks", "5"]) == 0
    assert "ring" in capsys.readouterr().out


def test_prove_refutes_a_function_of_a_file(tmp_path, capsys):
    (tmp_path / "mine.py").write_text(
        "from teachdist.collectives import Send\n"
        "def lost(rank, size):\n"
        "    if rank == 0 and size > 1:\n"
        "        yield Send(1, 0)\n"
    )
    path = f"{tmp_path / 'mine.py'}:lost"
    assert cli.main(["prove", path, "--op", "broadcast", "--ranks", "3"]) == 1
    assert "rank 0" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "name", "words"),
    [
        ("x = 1\ny = 1 / 0\n", "f", r"mine\.py:2 raises ZeroDivisionError: division by zero"),
        ("def g(rank, size):\n    yield ()\n", "f", r"defines no f; its generators are: g"),
        ("def f(:\n", "f", r"mine\.py raises SyntaxError"),
        ("def f(rank):\n    yield ()\n", "f", r"^teachdist prove: .*must take \(rank, size\)"),
    ],
)
def test_prove_says_what_is_wrong_with_the_file(text, name, words, tmp_path, capsys):
    (tmp_path / "mine.py").write_text(text)
    assert cli.main(["prove", f"{tmp_path / 'mine.py'}:{name}", "--op", "all_reduce"]) == 1
    assert re.search(words, capsys.readouterr().err)


def test_prove_wants_a_function_of_the_file(capsys):
    assert cli.main(["prove", "mine.py", "--op", "all_reduce"]) == 1
    assert "mine.py: name the function too, mine.py:FUNCTION" in capsys.readouterr().err


def test_prove_with_a_file_that_is_not_there(tmp_path, capsys):
    assert cli.main(["prove", f"{tmp_path / 'none.py'}:f", "--op", "all_reduce"]) == 1
    assert "none.py: No such file" in capsys.readouterr().err


def test_prove_with_chunks(tmp_path, capsys):
    (tmp_path / "mine.py").write_text(
        "from teachdist.collectives import Recv, Send\n"
        "def f(rank, size):\n"
        "    for step in range(1, size):\n"
        "        to, source = (rank + step) % size, (rank - step) % size\n"
        "        yield Send(to, rank), Recv(source, source)\n"
    )
    mine = f"{tmp_path / 'mine.py'}:f"
    assert cli.main(["prove", mine, "--op", "all_gather"]) == 0
    for chunks in ("ranks", "2", "none", "0"):
        reduced = ["prove", mine, "--op", "all_reduce", "--least", "3", "--chunks", chunks]
        assert cli.main(reduced) == 1
    said = capsys.readouterr()
    assert "there are only chunks 0..1" in said.out
    assert "--chunks none: expected a number" in said.err


def test_prove_says_what_there_is_when_a_name_is_wrong(capsys):
    assert cli.main(["prove", "rign", "--op", "all_reduce"]) == 1
    assert "did you mean 'ring'" in capsys.readouterr().err


def test_course_copies_and_does_not_overwrite(tmp_path, capsys):
    target = tmp_path / "course"
    assert cli.main(["course", str(target)]) == 0
    copied = {path.name for path in target.iterdir()}
    assert copied == {path.name for path in cli.course_folder().glob("*.ipynb")}
    assert "00-quickstart.ipynb" in copied
    (target / "00-quickstart.ipynb").write_text("my notes")
    assert cli.main(["course", str(target)]) == 1
    assert "--overwrite" in capsys.readouterr().err
    assert (target / "00-quickstart.ipynb").read_text() == "my notes"
    assert cli.main(["course", str(target), "--overwrite"]) == 0
    assert (target / "00-quickstart.ipynb").read_text() != "my notes"


def test_the_demo_refuses_numbers_that_it_cannot_show(capsys):
    for ranks in ("1", "17"):
        assert cli.main(["demo", "--ranks", ranks]) == 1
        assert f"--ranks {ranks}: the demo needs 2 to 16 ranks" in capsys.readouterr().err
