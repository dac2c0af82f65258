"""Traces in files: what is written is read, and what is none is told."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from teachdist import rehearse
from teachdist.cli import main
from teachdist.tracing.blame import blame
from teachdist.tracing.files import TraceFileError, load, save


def late():
    import time

    for _ in range(4):
        if dist.get_rank() == 1:
            time.sleep(0.02)
        dist.all_reduce(torch.ones(3))


def stored(folder):
    found = rehearse(late, ranks=3)
    for rank, log in found.logs.items():
        save(rank, log, folder / f"rank{rank}.json", [(log.began, "late.py:3, in late")])
    return found


def test_what_is_written_is_read(tmp_path):
    found = stored(tmp_path)
    again = load(tmp_path)
    assert sorted(again) == [0, 1, 2]
    logs = {rank: one.log for rank, one in again.items()}
    assert str(blame(logs)) == str(found.blame())
    assert again[1].lines == [(found.logs[1].began, "late.py:3, in late")]


def test_the_command_says_the_sentence_and_draws(tmp_path, capsys):
    stored(tmp_path)
    picture = tmp_path / "picture.svg"
    assert main(["explain", str(tmp_path), "--picture", str(picture)]) == 0
    assert "waiting for rank 1" in capsys.readouterr().out
    assert picture.read_text().startswith("<svg")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is not a trace of this package"),
        ("[]", "is not a trace of this package"),
        ('{"format": "another"}', "format 'another', expected"),
        (b"\xff\xfe\x00", "can't be read"),
    ],
)
def test_garbage_is_told_with_its_file(tmp_path, capsys, content, said):
    file = tmp_path / "rank0.json"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert main(["explain", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert said in error
    assert "rank0.json" in error


def test_a_cut_file_is_told(tmp_path):
    stored(tmp_path)
    file = tmp_path / "rank1.json"
    file.write_text(file.read_text()[:-20])
    with pytest.raises(TraceFileError, match=r"rank1\.json: is not a trace"):
        load(tmp_path)


def test_two_files_of_one_rank(tmp_path):
    stored(tmp_path)
    (tmp_path / "rank7.json").write_text((tmp_path / "rank1.json").read_text())
    with pytest.raises(TraceFileError, match="another file of rank 1"):
        load(tmp_path)


def test_a_folder_without_traces(tmp_path):
    with pytest.raises(TraceFileError, match="no trace in this folder"):
        load(tmp_path)
    with pytest.raises(TraceFileError, match="nothing of that name"):
        load(tmp_path / "none")


PROGRAM = """
import time
import torch, torch.distributed as dist

def load(step):
    if dist.get_rank() == 1:
        time.sleep(0.05)

dist.init_process_group({backend!r}{options})
for step in range(12):
    load(step)
    dist.all_reduce(torch.ones(10))
dist.destroy_process_group()
"""


@pytest.mark.parametrize("delegate", ["", "gloo"])
def test_an_unchanged_program_leaves_its_traces_and_the_line_is_found(tmp_path, capsys, delegate):
    program = tmp_path / "train.py"
    program.write_text(PROGRAM.format(backend="teachdist", options=""))
    environment = {
        **os.environ,
        "TEACHDIST_TRACE": str(tmp_path / "traces"),
        "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
    }
    if delegate:
        environment["TEACHDIST_DELEGATE"] = delegate
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=3", str(program)]
    subprocess.run(launch, check=True, env=environment, capture_output=True)
    assert main(["explain", str(tmp_path / "traces")]) == 0
    sentence = capsys.readouterr().out.splitlines()[0]
    assert "waiting for rank 1" in sentence
    assert "most of it at train.py:7, in load" in sentence
    assert sorted(json.loads(f.read_text())["rank"] for f in (tmp_path / "traces").iterdir()) == [
        0,
        1,
        2,
    ]
