"""The documented exception types, and what raises them here."""

from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from scenes import play

from teachdist.stores import TCPStore


def test_all_derive_from_runtime_error():
    for kind in (dist.DistError, dist.DistBackendError, dist.DistNetworkError, dist.DistStoreError):
        assert issubclass(kind, RuntimeError)


def test_dist_error_is_the_base():
    for kind in (dist.DistBackendError, dist.DistNetworkError, dist.DistStoreError):
        assert issubclass(kind, dist.DistError)


def test_a_mismatch_is_a_backend_error():
    outcomes = play(lambda rank: dist.all_reduce(torch.ones(rank + 1)))
    assert all(isinstance(outcome.error, dist.DistBackendError) for outcome in outcomes)


@pytest.mark.parametrize("kind", [dist.TCPStore, TCPStore], ids=["torch", "teachdist"])
def test_a_key_that_never_comes_is_a_store_error_that_names_it(kind):
    store = kind("127.0.0.1", 0, 1, True, timedelta(milliseconds=50))
    with pytest.raises(dist.DistStoreError, match="missing key"):
        store.get("missing key")


@pytest.mark.parametrize("kind", [dist.TCPStore, TCPStore], ids=["torch", "teachdist"])
def test_a_server_that_is_gone_is_a_network_error(kind):
    server = kind("127.0.0.1", 0, 1, True, timedelta(seconds=1), wait_for_workers=False)
    client = kind("127.0.0.1", server.port, 1, False, timedelta(seconds=1), wait_for_workers=False)
    del server
    with pytest.raises(dist.DistNetworkError):
        client.get("anything")
