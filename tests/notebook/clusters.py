"""What several tests of the notebook share; fixtures are in conftest.py."""

import os
import time

import psutil
import pytest

BACKEND = os.environ.get("TEACHDIST_TEST_BACKEND", "teachdist")
RANKS = 3
GONE_WITHIN = 20.0  # seconds, also on a loaded machine

needs_release = pytest.mark.skipif(
    BACKEND != "teachdist", reason="only backend teachdist frees the others when a rank fails"
)


def processes_of(cluster):
    """All processes that belong to a cluster started here."""
    started = cluster._processes._cluster
    pids = [started.controller.pid]
    for engines in started.engines.values():
        launchers = getattr(engines, "launchers", {}).values() or [engines]
        pids += [launcher.pid for launcher in launchers]
    parents = [psutil.Process(pid) for pid in pids]
    return parents + [child for parent in parents for child in parent.children(recursive=True)]


def assert_gone(processes):
    """Fail unless all of them end soon."""
    deadline = time.monotonic() + GONE_WITHIN
    while left := [process for process in processes if is_running(process)]:
        assert time.monotonic() < deadline, f"still there: {left}"
        time.sleep(0.05)


def is_running(process):
    """Whether it is more than a zombie."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
