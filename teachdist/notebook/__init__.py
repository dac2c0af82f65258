"""Ranks that feel like one kernel: ``Cluster`` and the magics ``%ranks`` and ``%%ranks``."""

from teachdist.notebook.cluster import Cluster
from teachdist.notebook.errors import ClusterError, RanksError

__all__ = ["Cluster", "ClusterError", "RanksError", "load_ipython_extension"]


def load_ipython_extension(shell):
    """``%load_ext teachdist``."""
    from teachdist.notebook.magics import RanksMagics

    shell.register_magics(RanksMagics(shell))
