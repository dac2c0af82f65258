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
from torch.utils._python_dispatch import _disable_current_modes

from teachdist.rehearse.errors import CannotRehearse
from teachdist.rehearse.model import Roofline, tensors_of


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
    price = Roofline(job.device).seconds if job.device else None
    with Shapes(rank, job.memory, price):
        try:
            yield
        except DataDependentOutputException as error:
            raise CannotRehearse(
                f"rehearse: the program looks at a value ({error}), as with tensor.item(), print "
                "or an object collective; with values=False there are none"
            ) from error


class Shapes(FakeTensorMode):
    """torch's fake tensors, and at each operation a look at what it takes.

    peaks: {rank: bytes of the storages that lived at once}. price: seconds of an operation, or
    None. One mode does both, as each mode more is another way from C++ to Python and back.
    """

    def __init__(self, rank, peaks, price):
        super().__init__(allow_non_fake_inputs=True)
        self._rank, self._peaks, self._price = rank, peaks, price
        self._known = weakref.WeakSet()
        self._bytes = 0
        self._inside = False
        peaks[rank.number] = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if self._inside:  # what an operation is made of
            return super().__torch_dispatch__(function, types, args, kwargs)
        self._inside = True
        try:
            out = super().__torch_dispatch__(function, types, args, kwargs)
        finally:
            self._inside = False
        clock = self._rank.clock
        if not function.is_view and not clock.inside:
            for tensor in tensors_of((out,)):
                self._count(tensor.untyped_storage())
            if self._price is not None:
                clock.pending += self._price(function, args, kwargs or {}, out)
        return out

    def _count(self, storage):
        if storage in self._known:
            return
        self._known.add(storage)
        nbytes = storage.nbytes()
        self._bytes += nbytes
        number = self._rank.number
        self._peaks[number] = max(self._peaks[number], self._bytes)
        weakref.finalize(storage, self._free, nbytes)

    def _free(self, nbytes):
        self._bytes -= nbytes
