"""`teachdist rehearse SCRIPT`, the summary, and the timeline."""

import json
import re

import torch
import torch.distributed as dist

from teachdist import rehearse
from teachdist.cli import main

SCRIPT = """
import os
import sys

import torch
import torch.distributed as dist

import helper

if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    helper.mine.append(rank)
    total = torch.tensor([float(rank)])
    for _ in range(4):
        dist.all_reduce(total)
    dist.barrier()
    print("total", total.item(), helper.mine == [rank], sys.argv[1:])
    if "--fail" in sys.argv and rank == 2:
        raise ValueError("bad data")
    dist.destroy_process_group()
"""


def script(folder):
    """The path of the script, with a module beside it."""
    (folder / "helper.py").write_text("mine = []\n")
    path = folder / "train.py"
    path.write_text(SCRIPT)
    return str(path)


def test_a_script_for_torchrun(tmp_path, capsys):
    out = tmp_path / "timeline.json"
    words = ["rehearse", script(tmp_path), "--ranks", "4", "--topology", "2 hosts x 2"]
    assert main([*words, "--timeline", str(out), "--", "--lr", "3"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "[0-3] total 384.0 True ['--lr', '3']"
    assert said[1].startswith("4 ranks, 2 hosts x 2, infiniband: ")
    assert re.search(r"a step, from all_reduce\(float32\[1\], SUM\) at train.py:\d+ to", said[2])
    assert said[4].startswith("sent: ") or "sent: " in said[4]
    names = {event["name"] for event in json.loads(out.read_text())["traceEvents"]}
    assert {"computing", "process_name", "thread_name"} <= names


def test_a_script_that_fails(tmp_path, capsys):
    assert main(["rehearse", "--ranks", "3", script(tmp_path), "--fail"]) == 1
    said = capsys.readouterr().err
    assert 'raise ValueError("bad data")' in said
    assert "rehearse/run.py" not in said
    assert "rank 2 failed: ValueError: bad data, at train.py:" in said


def test_a_script_that_would_hang_elsewhere(tmp_path, capsys):
    path = tmp_path / "swap.py"
    path.write_text(
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "x, other = torch.ones(1), 1 - dist.get_rank()\n"
        "dist.send(x, other)\n"
        "dist.recv(x, other)\n"
    )
    words = ["rehearse", str(path), "--ranks", "2"]
    assert main(words) == 0
    capsys.readouterr()
    assert main([*words, "--rules", "nccl"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("by the rules of nccl: ranks 0 and 1 wait for each other")
    assert "at swap.py:4" in said


def test_a_topology_without_room_is_refused(tmp_path, capsys):
    words = ["rehearse", script(tmp_path), "--ranks", "5", "--topology", "2 hosts x 2"]
    assert main(words) == 1
    assert "has 4 places, but there are 5 ranks" in capsys.readouterr().err


def test_the_summary_says_for_whom_others_wait():
    def program():
        import time

        if dist.get_rank() == 3:
            time.sleep(1)
        dist.all_reduce(torch.ones(1 << 20))

    answer = rehearse(program, ranks=8, topology="2 hosts x 4", clock="modelled")
    assert "(for rank 3: 100% of it)" in answer.summary
    sent = re.search(r"sent: ([\d.]+) MiB inside hosts, ([\d.]+) MiB between hosts", str(answer))
    assert float(sent[1]) + float(sent[2]) >= 2 * 7 * 4  # MiB: the least that 8 ranks can send
    assert "<img" in answer.timeline()._repr_html_()
    assert len(answer.timeline().svg()) < 20_000


def test_the_picture_stays_small_among_many_ranks():
    def program():
        for _ in range(20):
            dist.all_reduce(torch.ones(4))

    svg = rehearse(program, ranks=128).timeline().svg()
    assert len(svg) < 2_000_000
    assert "ranks 0-1" in svg
