"""Levels of the log: the documented table, for torch's C++ log and for this package's."""

import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from teachdist.diagnose import log

ROOT = Path(__file__).resolve().parents[2]

# TORCH_CPP_LOG_LEVEL, TORCH_DISTRIBUTED_DEBUG, this package's level, letters of torch's lines
TABLE = {
    "error": ("ERROR", "DETAIL", logging.ERROR, {"E"}),
    "warning": ("WARNING", "DETAIL", logging.WARNING, {"E", "W"}),
    "info": ("INFO", "OFF", logging.INFO, {"E", "W", "I"}),
    "debug": ("INFO", "INFO", logging.DEBUG, {"E", "W", "I"}),
    "trace": ("INFO", "DETAIL", log.TRACE, {"E", "W", "I"}),
}

SCRIPT = """
import sys
from datetime import timedelta
import torch, torch.distributed as dist

dist.init_process_group("teachdist", init_method=f"file://{sys.argv[1]}", rank=0, world_size=1)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
for _ in range(3):
    model(torch.ones(2, 2)).sum().backward()
try:
    dist.TCPStore("127.0.0.1", 1, 1, False, timedelta(milliseconds=50))
except dist.DistError:
    pass
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """What a fresh process writes to stderr under each row of the table; all run at once."""
    directory = tmp_path_factory.mktemp("levels")
    processes = {}
    for name, (cpp, debug, *_) in TABLE.items():
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "TORCH_CPP_LOG_LEVEL": cpp,
            "TORCH_DISTRIBUTED_DEBUG": debug,
        }
        environment.pop("TEACHDIST_LOG", None)
        processes[name] = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(directory / name)],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
    return {name: each.communicate(timeout=150)[1] for name, each in processes.items()}


@pytest.mark.parametrize("name", TABLE)
def test_torchs_own_log_follows_the_table(name, said):
    letters = set(re.findall(r"^(?:\[rank0\]:)?\[([A-Z])\d{4} ", said[name], re.MULTILINE))
    assert letters == TABLE[name][3]


def test_distributed_debug_adds_lines(said):
    lines = [said[name].count("[rank0]:[I") for name in ("info", "debug", "trace")]
    assert lines[0] < lines[1] < lines[2]
    assert "DDP Initialized with" in said["debug"]
    assert "DDP Initialized with" not in said["info"]


def test_this_packages_log_follows_it_too(said):
    ours = {
        name: [line for line in text.splitlines() if line.startswith("[teachdist]")]
        for name, text in said.items()
    }
    assert ours["error"] == ours["warning"] == []
    assert any("meets in group" in line for line in ours["info"])
    assert not any("all_reduce" in line for line in ours["info"])
    assert any("all_reduce(float32[6], SUM)" in line for line in ours["debug"])


@pytest.mark.parametrize("name", TABLE)
def test_level_by_the_table(name):
    cpp, debug, level, _ = TABLE[name]
    environment = {"TORCH_CPP_LOG_LEVEL": cpp, "TORCH_DISTRIBUTED_DEBUG": debug}
    assert log.level(environment) == level
    assert log.level({**environment, "TEACHDIST_LOG": "debug"}) == logging.DEBUG


def test_level_without_anything_is_warning():
    assert log.level({}) == logging.WARNING
    assert log.level({"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}) == logging.WARNING


@pytest.mark.parametrize("name", log.LEVELS)
def test_teachdist_log_by_name(name):
    assert log.level({"TEACHDIST_LOG": name.upper()}) == log.LEVELS[name]


def test_an_unknown_level_is_refused():
    with pytest.raises(ValueError, match="TEACHDIST_LOG='loud': known are error, warning"):
        log.level({"TEACHDIST_LOG": "loud"})


def test_a_wrong_level_does_not_end_a_job(monkeypatch, caplog):
    monkeypatch.setenv("TEACHDIST_LOG", "loud")
    monkeypatch.setattr(log.log, "level", logging.NOTSET)
    log.configure()
    assert log.log.level == logging.WARNING
    assert "TEACHDIST_LOG='loud': known are error" in caplog.text


def test_lines_go_to_stderr_unless_the_program_logs_itself(capsys, monkeypatch):
    handler = next(h for h in log.log.handlers if isinstance(h, log._Stderr))
    record = log.log.makeRecord("teachdist", logging.WARNING, "f", 1, "rank 0 waits", (), None)
    monkeypatch.setattr(logging.root, "handlers", [])
    handler.emit(record)
    assert capsys.readouterr().err == "[teachdist] rank 0 waits\n"
    monkeypatch.setattr(logging.root, "handlers", [logging.NullHandler()])
    handler.emit(record)
    assert capsys.readouterr().err == ""
