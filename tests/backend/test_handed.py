"""Sends and receives that a native backend executes: their handles, and what is said of them."""

import pytest
import torch
import torch.distributed as dist
from scenes import play

GLOO = {"delegate": "gloo"}


def test_send_and_receive_are_handed_over():
    def scene(rank):
        x = torch.full((3,), float(rank))
        if rank == 0:
            dist.send(x, 1)
            work = dist.irecv(x, 1)
            work.wait()
            return x[0].item(), work.is_completed()
        source = dist.recv(x)
        dist.isend(x + 5, 0).wait()
        return x[0].item(), source

    assert [outcome.value for outcome in play(scene, options=GLOO)] == [(5, True), (0, 0)]


def test_a_receive_that_nobody_serves_says_for_whom_it_waits():
    def scene(rank):
        store = dist.distributed_c10d._get_default_store()
        dist.barrier()
        if rank == 1:
            store.wait(["gave up"])
            return None
        try:
            with pytest.raises(dist.DistBackendError) as caught:
                dist.recv(torch.ones(3), 1)
        finally:
            store.set("gave up", "")
        return str(caught.value)

    outcome, _ = play(scene, options=GLOO, timeout=2.0)
    said = outcome.value or outcome.said
    assert "rank 0 gave up in recv(float32[3], src=rank 1) at <dynamic-code>" in said
    assert "rank 1 is in user code at <dynamic-code>" in said
