"""However a rank ends, nothing of it is left: no file, memory, socket or process; others are told.

The ranks are those of a program of its own (`ends.py`), for a pool's ranks never end as scripts do.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

NOTHING = {"files": [], "processes": [], "memory": [], "sockets": []}
STATUS = {  # of the rank that ends
    "leave": 0,
    "exit": 3,
    "exception": 1,
    "interrupt": -signal.SIGINT,
    "terminate": -signal.SIGTERM,
    "kill": -signal.SIGKILL,
}


@pytest.fixture(scope="module")
def ways(tmp_path_factory):
    """What the program found: {way: {"ranks": statuses, "left": ..., ...}}."""
    if not sys.platform.startswith("linux"):
        pytest.skip("looks into /proc")
    folder = tmp_path_factory.mktemp("ends")
    (folder / "tmp").mkdir()
    root = str(Path(__file__).resolve().parents[2])
    environment = {**os.environ, "TMPDIR": str(folder / "tmp"), "PYTHONPATH": root}
    program = [sys.executable, str(Path(__file__).with_name("ends.py")), str(folder)]
    done = subprocess.run(
        program, capture_output=True, text=True, timeout=150, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("way", STATUS)
def test_nothing_is_left(ways, way):
    found = ways[way]
    assert found["took"]["memory"] > 2  # there was something to leave
    assert found["took"]["sockets"] > 2
    assert found["left"] == NOTHING


@pytest.mark.parametrize("way", STATUS)
def test_it_ends_as_it_should_and_frees_the_other(ways, way):
    found = ways[way]
    waiting, ending = found["ranks"]
    assert ending == STATUS[way], found["said"]
    assert waiting == (0 if way == "leave" else 1), found["said"]
    assert found["seconds"] < 10  # the group's own deadline is 15 s


@pytest.mark.parametrize(
    ("way", "words"),
    [
        ("exit", "rank 1"),
        ("exception", "rank 1"),
        ("interrupt", "rank 1 failed: KeyboardInterrupt"),
        ("terminate", "rank 1"),
        ("kill", "rank 1"),
    ],
)
def test_the_other_names_it(ways, way, words):
    assert words in ways[way]["said"][0]
