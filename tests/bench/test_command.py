"""The benchmark as a command: table, JSON and plot of a tiny run; wrong arguments."""

import argparse
import subprocess
import sys

import psutil
import pytest

from teachdist.bench import fill, main, report
from teachdist.bench.cases import CASES
from teachdist.bench.measure import BLOCKS


def test_a_line_for_every_case(tiny):
    head, *lines = tiny.table
    assert head.split()[:5] == ["op", "bytes", "p", "thr", "gloo"]
    names = [tuple(line.split()[:4]) for line in lines]
    assert names == [
        ("all_reduce", "8", "2", "1"),
        ("all_reduce", "64K", "2", "1"),
        ("p2p", "8", "2", "1"),
        ("p2p", "64K", "2", "1"),
        ("barrier", "0", "2", "1"),
    ]


def test_the_json_has_all_that_was_measured(tiny):
    machine, rows = tiny.found["machine"], tiny.found["rows"]
    assert machine.keys() == {"system", "processors", "python", "torch", "load"}
    assert tiny.found["arguments"]["links"] == ["shm", "tcp"]
    assert [(row["op"], row["nbytes"]) for row in rows] == [
        ("all_reduce", 8),
        ("all_reduce", 65536),
        ("p2p", 8),
        ("p2p", 65536),
        ("barrier", 0),
    ]
    for row in rows:
        assert row["seconds"].keys() == {"gloo", "shm", "tcp"}
        assert all(0 < seconds < 60 for seconds in row["seconds"].values())
        assert {len(times) for times in row["blocks"].values()} == {BLOCKS}
        assert row["copy"] > 1e8  # bytes per second: every machine copies faster than that
    assert rows[0]["moved"] == 8
    assert rows[2]["moved"] == 16


def test_the_command_measures_the_same_again(tiny):
    words = tiny.found["command"].split()
    assert words[:2] == ["teachdist", "bench"]
    parser = argparse.ArgumentParser()
    fill(parser)
    again = parser.parse_args(words[2:])
    assert again.ranks == [2]
    assert again.ops == ["all_reduce", "p2p", "barrier"]
    assert again.sizes == [8, 65536]
    assert again.links == ["shm", "tcp"]


def test_the_table_says_what_the_json_says(tiny):
    for line, row in zip(tiny.table[1:], tiny.found["rows"], strict=True):
        gloo, shm, ratio = line.split()[4:7]
        assert float(gloo) == pytest.approx(row["seconds"]["gloo"] * 1e6, abs=0.06)
        assert float(shm) == pytest.approx(row["seconds"]["shm"] * 1e6, abs=0.06)
        assert float(ratio) == pytest.approx(
            row["seconds"]["gloo"] / row["seconds"]["shm"], abs=0.006
        )


def test_only_who_computes_as_well_is_measured_without_communication(tiny):
    assert [row["alone"] for row in tiny.found["rows"]] == [None] * 5
    row = tiny.found["rows"][0] | {"alone": tiny.found["rows"][0]["seconds"]["gloo"] / 2}
    assert report.line(row, ["shm"]).endswith("  computing alone: 2.00")


def test_its_ranks_end_with_a_command_that_is_killed():
    command = [sys.executable, "-m", "teachdist.bench", "--ranks", "2", "--ops", "barrier"]
    bench = subprocess.Popen(command, stdout=subprocess.PIPE)
    bench.stdout.readline()
    while not (ranks := psutil.Process(bench.pid).children(recursive=True)):
        assert bench.poll() is None
    bench.kill()
    bench.wait()
    bench.stdout.close()
    _, left = psutil.wait_procs(ranks, timeout=30)
    assert left == []


def test_the_plot_is_drawn(tiny):
    assert tiny.plot.read_text().lstrip().startswith("<?xml")
    assert tiny.plot.stat().st_size > 10_000


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--ops", "all_reduce,dance"], "not known: dance; --help lists what is"),
        (["--links", "shm,radio"], "not known: radio"),
    ],
)
def test_unknown_names_are_refused_before_anything_starts(arguments, said):
    with pytest.raises(SystemExit) as refused:
        main(arguments)
    assert said in str(refused.value)


@pytest.mark.parametrize("arguments", [["--ranks", "two"], ["--sizes", "8;9"], ["--speed"]])
def test_what_cannot_be_read_is_refused(arguments, capsys):
    with pytest.raises(SystemExit) as refused:
        main(arguments)
    assert refused.value.code == 2
    assert "usage: teachdist bench" in capsys.readouterr().err


def test_help_names_all_operations(capsys):
    with pytest.raises(SystemExit) as over:
        main(["--help"])
    assert over.value.code == 0
    text = capsys.readouterr().out.replace("\n", " ")
    assert all(op in text for op in CASES)


def test_it_is_a_program_of_its_own():
    run = [sys.executable, "-m", "teachdist.bench", "--links", "radio"]
    done = subprocess.run(run, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "not known: radio" in done.stderr
