"""The hang gallery in a notebook: each program as a cell on ranks that are there.

What differs from a script: the ranks stay. A cell that fails ends on all of them, whatever the
others are waiting for, and the next cell finds groups and variables as they were. What is said is
stored in the table [notebook] of hang.toml (recorded by running this file with RECORD=1), or is
what [teachdist] says there.
"""

import os
import re
import sys
from pathlib import Path

import pytest
from clusters import needs_release

from teachdist import Cluster
from teachdist.notebook import RanksError
from teachdist.notebook.cells.outputs import collapse, errors_of, plain

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "hangs"))
import gallery

pytestmark = needs_release
# Ends in a killed process, forks one, or makes the ranks' process group anew.
ELSEWHERE = {"36-killed", "12-a-file-used-before", "16-init-again"}
CASES = [case for case in gallery.CASES if case not in ELSEWHERE]


@pytest.fixture(scope="module")
def clusters():
    """Clusters by number of ranks, started when first asked for."""
    made = {}

    def of(n):
        if n not in made:
            made[n] = Cluster(n)
            made[n].push(kept="before")
        return made[n]

    yield of
    for cluster in made.values():
        cluster.stop()


def where_and_when_aside(text):
    """Without places, processes, seconds and numbers of calls, which differ from a script's."""
    text = re.sub(r"broken\.py:\d+|cell \d+, line \d+|\S+\.py:\d+", "HERE", text)
    text = re.sub(r"rank \d+, (?=pid)", "", text)  # as torchrun tells ranks, and nobody here
    text = re.sub(r"pid \d+ on (a host|\S+?)(?=[,.:; ])", "pid 1 on a host", text)
    text = re.sub(r"\d+\.\d s\b", "1.0 s", text)
    text = re.sub(r'group "\d+"|call \d+', "", text)
    return re.sub(r"127\.0\.0\.1:\d+|/\S*/meeting", "...", text)


def loose(text):
    return re.sub(r"\d+", "0", text)


def perform(cluster, case, which, interrupt=False):
    """Run the program as a cell: (the RanksError or None, what was shown, {rank: everything})."""
    asked = cluster.execute(gallery.cell(case, which))
    error = None

    def look(_):
        hints = [task for task in asked if "has waited" in errors_of(task.items)]
        if hints or (interrupt and all(task.begun for task in asked)):
            raise KeyboardInterrupt  # the reader has seen enough, and presses stop

    try:
        cluster.wait(asked, look)
    except RanksError as failed:
        error = failed
    except KeyboardInterrupt:
        error = RanksError([task.failure for task in asked if task.failure])
    shown = collapse({task.rank: out_of(task.items) for task in asked})
    said = {task.rank: errors_of(task.items) for task in asked}
    for failure in error.failures if error else ():
        said[failure.rank] += f"{failure.name}: {failure.text}"
    return error, shown, said


def out_of(items):
    return "".join(plain(text) for kind, text in items if kind == "stdout")


@pytest.mark.parametrize("case", CASES)
def test_broken(case, clusters):
    hang = gallery.about(case)
    notebook = hang.get("notebook", {})
    expected = {**hang["teachdist"], **notebook}
    cluster = clusters(hang["ranks"])
    error, shown, said = perform(cluster, case, "broken", notebook.get("interrupts", False))
    text = str(error) if error else shown
    if notebook.get("hint"):  # the ranks stay, so nothing ends the wait but the reader
        text = next(one for one in said.values() if "has waited" in one).splitlines()[0]
    if os.environ.get("RECORD") and notebook:
        cells_alike = re.sub(r"cell \d+", "cell 1", text)
        gallery.record(case, "notebook", re.sub(r"\d+\.\d s\b", "1.0 s", cells_alike))
        expected = gallery.about(case)["notebook"]
    wanted = where_and_when_aside(expected["says"].strip().rstrip("."))
    if notebook:
        assert where_and_when_aside(text).strip().rstrip(".") == wanted
    elif expected["verdict"] == "works":
        assert error is None, said
    else:
        if not expected.get("exact", True):
            wanted, said = loose(wanted), {rank: loose(one) for rank, one in said.items()}
        assert any(wanted in where_and_when_aside(one) for one in said.values()), said
    assert cluster.busy == []
    assert cluster.pull("kept") == ["before"] * hang["ranks"], "the ranks are as they were"


@pytest.mark.parametrize("case", CASES)
def test_fixed(case, clusters):
    cluster = clusters(gallery.about(case)["ranks"])
    error, *_ = perform(cluster, case, "fixed")
    assert error is None
    assert cluster.pull("dist.get_world_size()") == [cluster.n] * cluster.n


def test_killed(clusters):
    """The notebook says which rank died and what to do; restart gives new ones."""
    case = "36-killed"
    cluster = clusters(3)
    error, *_ = perform(cluster, case, "broken")
    lines = str(error).splitlines()
    assert lines[0] == "rank 1: Died: its process ended (killed, or out of memory)"
    assert lines[-1] == "next: %ranks restart, or Cluster.restart()"
    cluster.restart()
    assert perform(cluster, case, "fixed")[0] is None
