"""One group, a backend for each kind of device: "cpu:gloo,cuda:teachdist"."""

import os
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from my_backends import MyBackend
from ranks import raised, shared_pool

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def start(backend, **how):
    """init_process_group on the ranks of a pool without a group."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    name = backend.replace(":", "_").replace(",", "_")
    path = Path(os.environ["RANKS_DIRECTORY"], name)
    store = dist.FileStore(str(path), size)
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, **how)


def summed():
    import teachdist

    x = torch.ones(1)
    with teachdist.trace() as record:
        dist.all_reduce(x)
    return x.item(), [call.op for call in record.calls]


def reached(backend):
    """A sum on the CPU, whether it came here, and the objects behind both devices."""
    start(backend)
    try:
        total, ours = summed()
        names = [dist.get_backend_impl(None, device).name() for device in (CPU, CUDA)]
        return total, bool(ours), names, dist.get_backend_config()
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize(
    ("backend", "ours", "names"),
    [
        ("cpu:gloo,cuda:teachdist", False, ["gloo", "teachdist"]),
        ("cpu:teachdist,cuda:gloo", True, ["teachdist", "gloo"]),
        ("cpu:teachdist,cuda:teachdist", True, ["teachdist", "teachdist"]),
        ("teachdist", True, ["teachdist", "teachdist"]),
    ],
)
def test_each_device_reaches_the_backend_that_is_named(backend, ours, names):
    for total, came, found, config in shared_pool(2, None).run(reached, backend):
        assert (total, came, found) == (2, ours, names)
        if ":" in backend:
            assert config == backend


def test_only_one_device():
    """cpu:NAME alone: nothing serves CUDA."""

    def job():
        start("cpu:teachdist")
        try:
            return summed()[0], raised(dist.get_backend_impl, None, CUDA) is not None
        finally:
            dist.destroy_process_group()

    assert shared_pool(2, None).run(job) == [(2, True)] * 2


def custom(name, device):
    """Register a small backend of that name for one device."""

    class Named(MyBackend):
        def getBackendName(self):  # noqa: N802
            return name

    made = []

    def create(store, rank, size, timeout):
        made.append(Named(store, rank, size, timeout))
        return made[-1]

    if name not in dist.Backend.backend_list:
        dist.Backend.register_backend(name, create, devices=[device])
    return made


def test_documented_example():
    """cpu:gloo,cuda:custom_backend."""

    def job():
        made = custom("custom_backend", "cuda")
        start("cpu:gloo,cuda:custom_backend")
        try:
            x = torch.ones(1)
            dist.all_reduce(x)
            impl = dist.get_backend_impl(None, CUDA)
            return x.item(), impl is made[0], dist.get_backend_impl(None, CPU).name()
        finally:
            dist.destroy_process_group()

    assert shared_pool(2, None).run(job) == [(2, True, "gloo")] * 2


def test_two_custom_backends_get_the_same_object():
    """torch keeps one object for all backends that are not its own; when this changes, say so."""

    def job():
        first, second = custom("first_one", "cpu"), custom("second_one", "cuda")
        start("cpu:first_one,cuda:second_one")
        try:
            found = [dist.get_backend_impl(None, device) for device in (CPU, CUDA)]
            return len(first), len(second), found[0] is first[0], found[1] is found[0]
        finally:
            dist.destroy_process_group()

    assert shared_pool(1, None).run(job) == [(1, 1, True, True)]
