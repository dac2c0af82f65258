"""Ranks that feel like one kernel: ``Cluster``, ``%ranks`` and ``%%ranks``, and ``show``."""

from teachdist.notebook.cluster import Cluster
from teachdist.notebook.errors import ClusterError, RanksError
from teachdist.notebook.show import show

__all__ = ["Cluster", "ClusterError", "RanksError", "load_ipython_extension", "show"]


def load_ipython_extension(shell):
    """``%load_ext teachdist``."""
    from teachdist.notebook.magics import RanksMagics

    shell.register_magics(RanksMagics(shell))
