"""Sends and receives that a native backend executes: their handles, and what is said of them."""

from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from scenes import play

from teachdist.backend import communicators
from teachdist.backend.native import natives

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
    assert "rank 0 gave up in recv(float32[3], src=rank 1) at test_native_work.py" in said
    assert "rank 1 is in user code at test_native_work.py" in said


def on_gpus(gpus, wanted):
    """What `Natives` answers on ranks whose tensors lie on these GPUs (there are none here)."""

    def scene(rank):
        kept = natives.gpu_of, natives.make_native, dist.is_nccl_available
        natives.gpu_of = lambda tensor: gpus[rank]
        natives.make_native = lambda name, *place: name
        dist.is_nccl_available = lambda: True
        try:
            return natives.Natives(communicators()[0], wanted).of(
                SimpleNamespace(device=torch.device("cuda", 0))
            )
        finally:
            natives.gpu_of, natives.make_native, dist.is_nccl_available = kept

    return play(scene, n=3)


def test_a_gpu_for_every_rank_means_nccl():
    assert [outcome.value for outcome in on_gpus(["A", "B", "C"], {})] == ["nccl"] * 3


def test_ranks_that_share_a_gpu_are_named_and_go_through_host_memory():
    outcomes = on_gpus(["A", "B", "A"], {})
    assert [outcome.value for outcome in outcomes] == [None] * 3
    assert "ranks 0 and 2 use one GPU (cuda:0): CUDA tensors go through host" in outcomes[0].said


def test_nccl_by_name_refuses_ranks_that_share_a_gpu():
    for outcome in on_gpus(["A", "A", "A"], {"cuda": "nccl"}):
        assert isinstance(outcome.error, dist.DistBackendError)
        assert "ranks 0-2 use one GPU (cuda:0), and NCCL needs a GPU of its own" in outcome.said
        assert "torch.cuda.set_device(LOCAL_RANK)" in outcome.said


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_objects_and_tensors_of_ranks_on_one_gpu():
    def scene(rank):
        found = [None] * 2
        x = torch.ones(1, device="cuda:0")
        dist.all_reduce(x)
        dist.all_gather_object(found, rank)
        return x.item(), found

    outcomes = play(scene)
    assert [outcome.value for outcome in outcomes] == [(2.0, [0, 1])] * 2
    assert "ranks 0 and 1 use one GPU (cuda:0)" in outcomes[0].said
