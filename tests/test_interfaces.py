"""Naming the network interface: GLOO_SOCKET_IFNAME and TEACHDIST_SOCKET_IFNAME."""

import os
import sys
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from ranks import BACKENDS, RankPool

LOOPBACK = "lo" if sys.platform == "linux" else "lo0"
VARIABLE = {"gloo": "GLOO_SOCKET_IFNAME", "teachdist": "TEACHDIST_SOCKET_IFNAME"}


def summed(backend, *names, seconds=30):
    """What each rank gets from four sums, or its error; rank r names interface names[r]."""

    def job():
        rank = int(os.environ["RANK"])
        os.environ.pop(VARIABLE[backend], None)
        if names:
            os.environ[VARIABLE[backend]] = names[rank]
        store = dist.FileStore(os.path.join(os.environ["RANKS_DIRECTORY"], "meeting"), 2)
        limit = timedelta(seconds=seconds)
        dist.init_process_group(backend, store=store, rank=rank, world_size=2, timeout=limit)
        ones = torch.ones(1000)
        for _ in range(4):
            dist.all_reduce(ones)
        dist.destroy_process_group()
        return ones[0].item()

    with RankPool(2, backend=None, grace=2 * seconds) as pool:
        return pool.outcomes(job)


@pytest.mark.parametrize("backend", BACKENDS)
def test_without_a_name_the_backend_finds_one(backend):
    assert summed(backend) == [16, 16]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_name(backend):
    assert summed(backend, LOOPBACK, LOOPBACK) == [16, 16]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_name_that_does_not_exist(backend):
    for error in summed(backend, "nosuch0", "nosuch0"):
        assert isinstance(error, (RuntimeError, ValueError))
        assert "nosuch0" in str(error)


@pytest.mark.parametrize("backend", BACKENDS)
def test_several_names(backend):
    """Gloo spreads its work over them; teachdist takes the first and needs no second."""
    second = LOOPBACK if backend == "gloo" else "nosuch0"
    names = f"{LOOPBACK},{second}"
    assert summed(backend, names, names) == [16, 16]


def test_gloo_wants_equally_many_names_on_every_rank():
    outcomes = summed("gloo", LOOPBACK, f"{LOOPBACK},{LOOPBACK}", seconds=2)
    assert all(isinstance(outcome, RuntimeError) for outcome in outcomes), outcomes
