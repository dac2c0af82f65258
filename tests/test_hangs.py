"""The hang gallery: every broken program gets its diagnosis in time, every fixed one passes.

`examples/hangs/NN-name/` has `broken.py`, `fixed.py` and `hang.toml`, which holds what teachdist
says (recorded by running this file's tests with RECORD=1) and, where it differs, gloo (recorded by
record_gloo.py).
"""

import json
import os
import re
import runpy
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
import torch.distributed as dist
from ranks import RankDiedError, shared_pool
from scenes import Outcome, _play, play

from teachdist import rehearse
from teachdist.rehearse import BrokenRules

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples" / "hangs"))
import gallery
from gallery import about

SOON = 2.0  # seconds in which ranks must say what is wrong


def run(rank, path, interrupted=()):
    if rank in interrupted:  # somebody presses Ctrl-C
        signal.signal(signal.SIGINT, signal.default_int_handler)
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    runpy.run_path(path)["main"](rank)


def perform(name, which):
    hang = about(name)
    path = str(gallery.FOLDER / name / f"{which}.py")
    interrupted = hang["teachdist"].get("interrupts", ()) if which == "broken" else ()
    return play(run, path, interrupted, n=hang["ranks"], timeout=hang.get("timeout", 30.0))


def plain(text):
    """Without what differs from run to run: seconds, processes, temporary names."""
    text = re.sub(r"\d+\.\d s\b", "1.0 s", text)
    text = re.sub(r"pid \d+ on \S+?(?=[,.:; ])", "pid 1 on a host", text)
    return re.sub(r"/\S*/meeting|127\.0\.0\.1:\d+", "...", text)


def loose(text):
    """And without the numbers of ranks, where it is a matter of luck who comes first."""
    return re.sub(r"\d+", "0", text)


def sentence(text):
    """The last thing that was said, without the class of the error and the rank's own place."""
    last = re.sub(r"^\w+: ", "", text.splitlines()[-1])
    return re.sub(r" \(rank \d+ was released from .*\)$", "", last)


@pytest.mark.parametrize("name", gallery.CASES)
def test_broken(name):
    hang = about(name)
    expected = hang["teachdist"]
    outcomes = killing(name, hang) if expected.get("kills") else perform(name, "broken")
    if expected["verdict"] == "works":
        assert [outcome.said for outcome in outcomes if outcome.error] == []
        return
    said = [plain(outcome.said) for outcome in outcomes]
    if os.environ.get("RECORD") and expected.get("record", True):
        gallery.record(
            name,
            "teachdist",
            sentence(said[expected["on"][0]] if expected["on"] else max(said, key=len)),
        )
        expected = about(name)["teachdist"]
    wanted = expected["says"].strip().rstrip(".")  # others go on: "..., at train.py:31"
    if not expected.get("exact", True):
        wanted, said = loose(wanted), [loose(text) for text in said]
    if not expected["on"]:  # a matter of luck on which rank
        assert any(wanted in text for text in said), said
    for rank in expected["on"]:
        assert wanted in said[rank]
    if expected["verdict"] == "error":
        assert all(outcome.seconds < SOON for outcome in outcomes)


def killing(name, hang):
    """A scene in which a rank's process ends: it has no outcome."""
    path = str(gallery.FOLDER / name / "broken.py")
    how = (f"-{name}", hang["ranks"], 30.0, {}, None)
    pool = shared_pool(hang["ranks"], backend=None)
    outcomes = pool.outcomes(_play, run, (path,), how)
    assert any(isinstance(outcome, RankDiedError) for outcome in outcomes)
    return [o if isinstance(o, Outcome) else Outcome() for o in outcomes]


@pytest.mark.parametrize("name", gallery.CASES)
def test_fixed(name):
    began = time.monotonic()
    for outcome in perform(name, "fixed"):
        assert outcome.error is None, outcome.said
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("name", [case for case in gallery.CASES if "rules" in about(case)])
def test_told_by_the_rules_of_nccl(name):
    """What works here and hangs there: a rehearsal says so, with the lines."""
    hang = about(name)
    with pytest.raises(BrokenRules) as caught:
        rehearse(rehearsed, name, "broken", ranks=hang["ranks"], rules="nccl")
    if os.environ.get("RECORD"):
        gallery.record(name, "rules", str(caught.value))
    assert about(name)["rules"]["says"].strip() == str(caught.value)
    assert rehearse(rehearsed, name, "fixed", ranks=hang["ranks"], rules="nccl")


def rehearsed(name, which):
    runpy.run_path(str(gallery.FOLDER / name / f"{which}.py"))["main"](dist.get_rank())


def test_every_example_says_what_a_page_needs():
    for name in gallery.CASES:
        hang = about(name)
        assert {"title", "ranks", "why", "remedy", "seen", "teachdist"} <= hang.keys(), name
        assert {"verdict", "on", "says"} <= hang["teachdist"].keys(), name
        for which in ("broken", "fixed"):
            assert gallery.source(name, which), name


def test_the_notebook_has_the_programs_of_the_gallery():
    """Its cells are copies, since a notebook is read by itself; this keeps them true ones."""
    path = gallery.FOLDER.parents[1] / "notebooks" / "19-hang-gallery.ipynb"
    seen = []
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        for tag in cell["metadata"].get("tags", []):
            case, _, which = tag.rpartition("-")
            if case in gallery.CASES:
                seen.append(case)
                assert "".join(cell["source"]) == f"%%ranks\n{gallery.cell(case, which)}".rstrip()
    assert len(seen) >= 30
    assert all(seen.count(case) == 2 for case in seen)
