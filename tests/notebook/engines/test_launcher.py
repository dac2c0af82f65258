import os
import sys

import pytest
from clusters import assert_gone, processes_of

from teachdist import Cluster
from teachdist.notebook.engines import launcher


def test_stock_engines_have_their_rank_as_id_and_restart():
    with Cluster(2, "gloo", launcher="stock") as cluster:
        processes = processes_of(cluster)
        before = cluster.run(os.getpid)
        assert cluster.client.ids == [0, 1]
        assert cluster.pull("rank") == [0, 1]
        cluster.restart()
        assert cluster.client.ids == [0, 1]
        assert cluster.pull("rank") == [0, 1]
        assert not set(before) & set(cluster.run(os.getpid))
        processes += processes_of(cluster)
    assert_gone(processes)


def test_names():
    quickest = launcher.ForkEngines if sys.platform == "linux" else launcher.StockEngines
    assert launcher.find(None) is quickest
    assert launcher.find("stock") is launcher.StockEngines
    assert launcher.find("slurm") == "slurm"
    assert {"mpi", "ssh", "slurm"} <= set(launcher.known())


@pytest.mark.parametrize(("given", "expected"), [(None, "1"), ("3", "3")])
def test_environment_of_ranks_on_one_machine(monkeypatch, given, expected):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if given is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", given)
    monkeypatch.setattr(sys, "path", ["", "/somewhere"])
    environment = launcher.local_environment()
    assert environment["OMP_NUM_THREADS"] == expected
    assert environment["PYTHONPATH"] == os.pathsep.join([os.getcwd(), "/somewhere"])
