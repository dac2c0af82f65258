"""A rank that fails outside of a call frees the others: in scripts, by the context manager."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from scenes import play

from teachdist.backend import Released, guard, release

ROOT = Path(__file__).resolve().parents[2]


def test_guard_frees_the_others_and_lets_the_error_pass():
    def scene(rank):
        if rank == 1:
            with pytest.raises(KeyError, match="lost"), guard():
                raise KeyError("lost")
            return "raised"
        with pytest.raises(Released) as caught:
            dist.barrier()
        return str(caught.value).partition(" (")[0]

    said, raised = [o.value for o in play(scene)]
    assert said.startswith("rank 1 failed: KeyError: 'lost', at test_release.py:")
    assert raised == "raised"


def test_an_exception_that_cannot_be_put_in_words_frees_the_others_too():
    class Mute(Exception):
        def __str__(self):
            raise RuntimeError("no words")

    def scene(rank):
        if rank == 1:
            with pytest.raises(Mute), guard():
                raise Mute
        else:
            dist.barrier()

    first, _ = play(scene)
    assert str(first.error).startswith("rank 1 failed: Mute, at test_release.py:")


def test_a_program_that_ends_well_releases_nobody():
    def scene(rank):
        with pytest.raises(SystemExit), guard():
            raise SystemExit(0)
        dist.barrier()
        return "fine"

    assert [o.value for o in play(scene)] == ["fine"] * 2


def test_a_program_that_gives_up_does():
    def scene(rank):
        if rank == 1:
            with pytest.raises(SystemExit), guard():
                sys.exit("no data")
        else:
            dist.barrier()

    first, _ = play(scene)
    assert str(first.error).startswith("rank 1 failed: SystemExit: no data")


def test_release_by_a_message_in_ones_own_words():
    def scene(rank):
        if rank == 0:
            release("rank 0 failed: the disk is full")
        else:
            dist.barrier()

    _, second = play(scene)
    assert str(second.error).startswith("rank 0 failed: the disk is full (rank 1 was released")


def test_after_a_release_calls_say_why_they_are_refused():
    def scene(rank):
        release("rank 0 failed: the disk is full")
        with pytest.raises(Released) as caught:
            dist.all_reduce(torch.ones(1))
        return str(caught.value)

    said = play(scene)[0].value
    assert said.startswith('rank 0 failed: the disk is full (group "0" ended with it, before ')
    assert "recover()" in said


def test_released_is_a_documented_exception():
    assert issubclass(Released, dist.DistBackendError)


def test_an_uncaught_exception_frees_the_others_without_guard(tmp_path):
    """A plain script: the interpreter's own hook tells the others before the process ends."""
    script = tmp_path / "train.py"
    script.write_text(
        "import os, torch, torch.distributed as dist\n"
        "dist.init_process_group('teachdist', init_method='file://' + os.environ['MEET'],\n"
        "                        rank=int(os.environ['RANK']), world_size=2)\n"
        "if dist.get_rank() == 1:\n"
        "    raise ValueError('bad batch')\n"
        "dist.barrier()\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MEET": str(tmp_path / "meeting")}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(script)],
            env={**environment, "RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    said = [rank.communicate(timeout=100)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [1, 1]
    assert "ValueError: bad batch" in said[1]
    sentence = "Released: rank 1 failed: ValueError: bad batch, at train.py:5 (rank 0 was released"
    assert sentence in said[0]
