"""One cluster for all tests of the notebook, and proof that nothing of it is left."""

import sys
from pathlib import Path

import pytest
from clusters import BACKEND, RANKS, assert_gone, processes_of

from teachdist import Cluster

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for ranks.py


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
