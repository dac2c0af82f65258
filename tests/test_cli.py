"""The command line: what it answers, and with which exit status."""

import pytest

from teachdist import cli


@pytest.mark.parametrize("command", ["", *cli.COMMANDS])
def test_help_is_there(command, capsys):
    if command in ("bench", "calibrate", "doctor"):
        pytest.importorskip(f"teachdist.{'diagnose.' * (command == 'doctor')}{command}")
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
