"""teachdist passes all of torch's own distributed tests that gloo passes on a CPU."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

HERE = Path(__file__).parent
BASELINE = tomllib.loads((HERE / "baseline.toml").read_text())
SHARDS = 2
# torch's C++ reports every backend that was registered from Python as "custom".
IMPOSSIBLE = {"test_ddp_logging_data_cpu"}

PASSES = {
    "main": ["--world-size", "3"],
    "mpi": ["--gate", "mpi"],
    "four": ["--world-size", "4"],
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", PASSES)
def test_suite(name, tmp_path):
    runs = [start(name, shard, tmp_path) for shard in range(SHARDS)]
    said = [run.communicate()[0] for run in runs]
    statuses = {}
    for shard in range(SHARDS):
        statuses |= records(tmp_path / f"{shard}.jsonl")
    wanted = {test for part in names(name) for test in BASELINE[part]} - IMPOSSIBLE
    wrong = {test: statuses.get(test, "did not run") for test in wanted}
    wrong = {test: status for test, status in wrong.items() if status != "pass"}
    logs = [log.read_text()[-3000:] for log in sorted((tmp_path / "logs").glob("*.log"))]
    assert not wrong, "\n".join([str(wrong), *said, *logs])


def names(name):
    return [name, "beyond_gloo"] if name == "mpi" else [name]


def start(name, shard, directory):
    command = [sys.executable, HERE / "run_suite.py", "--only", *names(name), *PASSES[name]]
    command += ["--shard", f"{shard}/{SHARDS}", "--out", directory / f"{shard}.jsonl"]
    command += ["--logs", directory / "logs"]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ.copy()
    )


def records(path):
    with path.open() as lines:
        return {record["test"]: record["status"] for record in map(json.loads, lines)}
