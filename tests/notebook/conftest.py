"""One cluster for all tests of the notebook, and proof that nothing of it is left."""

import os
import time
from pathlib import Path

import psutil
import pytest

from teachdist import Cluster

BACKEND = os.environ.get("TEACHDIST_TEST_BACKEND", "teachdist")
RANKS = 3
GONE_WITHIN = 8.0  # seconds


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
    while left := [p for p in processes if is_running(p)]:
        assert time.monotonic() < deadline, f"still there: {left}"
        time.sleep(0.05)


def is_running(process):
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture(scope="session")
def shared_cluster():
    cluster = Cluster(RANKS, BACKEND)
    processes = processes_of(cluster)
    directory = Path(cluster.connection_file).parents[1]
    assert len(processes) >= 2 + 2 * RANKS
    yield cluster
    cluster.stop()
    assert_gone(processes)
    assert not directory.exists()


@pytest.fixture
def cluster(shared_cluster):
    """The shared cluster, healthy; restarted afterwards if the test has broken it."""
    yield shared_cluster
    if shared_cluster.busy or "dead" in [one.state for one in shared_cluster.status()]:
        shared_cluster.restart()


needs_release = pytest.mark.skipif(
    BACKEND != "teachdist", reason="only backend teachdist frees the others when a rank fails"
)
