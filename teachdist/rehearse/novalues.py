"""Rehearsing without values: tensors that have a shape and a dtype, but no memory.

Seven billion parameters do not fit into a laptop, but their shapes do. torch's fake tensors answer
every operation with the shape of its result; collectives meet and take their time, and move
nothing. With the modelled clock that is enough to predict a step, and the memory that it takes:
each storage that a rank makes is counted until it is freed.

What looks at a value (`loss.item()`, object collectives) cannot work, and says so; nor can
DistributedDataParallel, whose C++ half reads the memory of gradients.
"""

import contextlib
import weakref
from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    FakeTensor,
    FakeTensorMode,
)
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_iter

from teachdist.rehearse.errors import CannotRehearse


def patch_values(patches, job):
    """Have fake tensors pass where only the identity of memory is asked for."""
    if job.values:
        return
    patches.attribute(FakeTensor, "data_ptr", lambda tensor: id(tensor))
    patches.for_ranks(job.scheduler, DistributedDataParallel, "__init__", lambda _: _refuse_reducer)

    # torch's own bookkeeping of fake tensors points to them weakly; model.to(dtype) would refuse.
    patches.attribute(torch.utils, "weakref", SimpleNamespace(getweakrefs=lambda tensor: ()))
    for owner, name in [(dist, "init_device_mesh"), *((DeviceMesh, name) for name in _MESH)]:
        patches.for_ranks(job.scheduler, owner, name, _with_values)
    whole = DeviceMesh.mesh.fget
    patches.attribute(DeviceMesh, "mesh", property(_with_values(whole)))


_MESH = ("__init__", "__getitem__", "_flatten", "_unflatten", "get_local_rank", "get_group")


def _with_values(original):
    """Meshes are small tables of ranks, which are looked at."""

    def really(*args, **kwargs):
        with _disable_current_modes():
            return original(*args, **kwargs)

    return really


def _refuse_reducer(*args, **kwargs):
    raise CannotRehearse(
        "rehearse: DistributedDataParallel reads the memory of gradients in C++, so it cannot run "
        "with values=False; use fully_shard, or a smaller model with values"
    )


@contextlib.contextmanager
def without_values(rank, job):
    """Tensors made inside have no memory; what they would take is kept in job.memory."""
    with FakeTensorMode(allow_non_fake_inputs=True), Memory(rank.number, job.memory):
        try:
            yield
        except DataDependentOutputException as error:
            raise CannotRehearse(
                f"rehearse: the program looks at a value ({error}), as with tensor.item(), print or "
                "an object collective; with values=False there are none"
            ) from error


class Memory(TorchDispatchMode):
    """Counts the bytes of the storages that live; peaks: {rank: bytes}."""

    def __init__(self, rank, peaks):
        super().__init__()
        self._rank, self._peaks = rank, peaks
        self._seen = weakref.WeakSet()
        self._bytes = 0
        peaks[rank] = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        if not function.is_view:
            for tensor in tree_iter(out):
                if isinstance(tensor, torch.Tensor):
                    self._count(tensor.untyped_storage())
        return out

    def _count(self, storage):
        if storage in self._seen:
            return
        self._seen.add(storage)
        nbytes = storage.nbytes()
        self._bytes += nbytes
        self._peaks[self._rank] = max(self._peaks[self._rank], self._bytes)
        weakref.finalize(storage, self._free, nbytes)

    def _free(self, nbytes):
        self._bytes -= nbytes
