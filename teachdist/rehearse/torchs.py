"""What torch keeps for a process, and how each rank gets its own while a rehearsal runs.

torch's table of groups is exchanged at a switch (`state.py`). Here is what must be said once:

- every name of a backend makes a rehearsed one, so that programs for gloo or NCCL run unchanged;
- every way to a store, and every rendezvous, leads to a store in memory (`store.py`);
- the C++ registry of groups is asked per thread;
- meshes of different ranks must not be taken for each other by DTensor's caches.
"""

import zlib
from datetime import timedelta
from urllib.parse import parse_qs, urlparse

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d
from torch.distributed import rendezvous

from teachdist.backend.torch_patches import uncompiled
from teachdist.rehearse.backend import Rehearsed, creator
from teachdist.rehearse.store import VirtualStore
from teachdist.rehearse.work import VirtualWork

BACKENDS = ("gloo", "nccl", "ucc", "xccl", "teachdist")
MANY = 128  # ranks from which on what is quadratic in them is avoided where that changes nothing
_STORES = ("TCPStore", "FileStore", "HashStore")


def patch_torch(patches, job):
    """Have torch.distributed serve virtual ranks until the patches are closed."""
    registry = torch._C._distributed_c10d
    registry._set_thread_isolation_mode(True)
    patches.callback(registry._set_thread_isolation_mode, False)
    if dist.get_debug_level() == dist.DebugLevel.DETAIL:  # it would wrap all groups in real gloo's
        patches.callback(dist.set_debug_level, dist.DebugLevel.DETAIL)
        dist.set_debug_level(dist.DebugLevel.INFO)
    uncompiled(Rehearsed, VirtualWork)
    for name in BACKENDS:
        plugin = c10d.Backend._BackendPlugin(creator(job, name), True)
        patches.item(c10d.Backend._plugins, name.upper(), plugin)
        # C++ takes what has gloo's type for its own class, and crashes.
        custom = dist.ProcessGroup.BackendType.CUSTOM
        patches.item(c10d.Backend.backend_type_map, name, custom)
    if job.device_as == "cpu":
        patches.item(c10d.Backend.backend_capability, "nccl", ["cpu", "cuda"])
    if "teachdist" not in dist.Backend.backend_list:
        from teachdist.backend.lifecycle import register

        register()
    _patch_stores(patches, job)
    _patch_meshes(patches, job)
    patches.for_ranks(job.scheduler, dist, "_verify_params_across_processes", _verifying)


def _verifying(original):
    """DistributedDataParallel's look whether all ranks have the same parameters.

    In C++ each rank makes a tensor for each rank, and all have them at the same time: a million
    among a thousand. So many ranks compare a number that stands for their shapes, and look closer
    only if that differs.
    """

    def verify(group, tensors, logger=None):
        size = group.size()
        if size <= MANY:
            return original(group, tensors, logger)
        shapes = repr([(tuple(t.shape), t.stride()) for t in tensors])
        everybody = torch.empty(size, dtype=torch.int64)
        mine = torch.tensor([zlib.crc32(shapes.encode())])
        dist.all_gather_single(everybody, mine, group=group)
        if (everybody != everybody[0]).any():
            original(group, tensors, logger)
        return None

    return verify


def _patch_stores(patches, job):
    for scheme in ("env", "tcp", "file"):
        patches.item(rendezvous.__globals__["_rendezvous_handlers"], scheme, _handler(job, scheme))
    makers = {
        "TCPStore": lambda host, port, *args, **kw: _store(
            job, "TCPStore", (str(host), int(port)), _given(kw, args, 2)
        ),
        "FileStore": lambda path, *args, **kw: _store(job, "FileStore", str(path), None),
        "HashStore": lambda *args: _store(job, "HashStore", object(), None),
    }
    for module in (dist, c10d, _module_of_rendezvous()):
        for name in _STORES:
            original = getattr(module, name, None)
            if isinstance(original, type):
                patches.attribute(module, name, _either(job, original, makers[name]))


def _given(keywords, arguments, place):
    """The time-out among what a TCPStore was given."""
    return keywords.get("timeout", arguments[place] if len(arguments) > place else None)


def _either(job, original, make):
    """A class that makes a virtual store on ranks' threads; isinstance works for both."""

    class Kind(type):
        def __instancecheck__(cls, instance):
            return isinstance(instance, (original, VirtualStore))

        def __call__(cls, *args, **kwargs):
            if job.scheduler.me() is None:
                return original(*args, **kwargs)
            return make(*args, **kwargs)

    return Kind(original.__name__, (), {"__doc__": original.__doc__})


def _store(job, name, key, timeout):
    store = VirtualStore(job.shelf(name, key))
    store.set_timeout(timeout if isinstance(timeout, timedelta) else timedelta(minutes=5))
    return store


def _module_of_rendezvous():
    import importlib

    return importlib.import_module("torch.distributed.rendezvous")


def _handler(job, scheme):
    """A rendezvous by URL: the store is named by it, rank and size by URL or environment."""
    original = rendezvous.__globals__["_rendezvous_handlers"][scheme]

    def handler(url, timeout=None, **kwargs):
        if job.scheduler.me() is None:
            yield from original(url, **({"timeout": timeout} if timeout else {}), **kwargs)
            return
        import os

        parts = urlparse(url)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}

        def asked(word, variable):
            value = query.get(word, os.environ.get(variable) if scheme == "env" else None)
            if value is None:
                raise ValueError(
                    f"Error initializing torch.distributed using {scheme}:// rendezvous: "
                    + (
                        f"environment variable {variable} expected, but not set"
                        if scheme == "env"
                        else f"{word} parameter missing"
                    )
                )
            return int(value)

        rank, size = asked("rank", "RANK"), asked("world_size", "WORLD_SIZE")
        key = (parts.netloc, parts.path) if scheme != "env" else "env"
        yield _store(job, "FileStore" if scheme == "file" else "TCPStore", key, timeout), rank, size
        raise RuntimeError("Unable to perform rerendezvous")

    return handler


def _patch_meshes(patches, job):
    from torch.distributed.device_mesh import DeviceMesh

    def get(mesh):
        actor = job.scheduler.me()
        if actor is None:
            return mesh.__dict__.get("_of_rank")
        return mesh.__dict__.setdefault("_of_rank", actor.rank.number)

    patches.callback(delattr, DeviceMesh, "_thread_id")
    DeviceMesh._thread_id = property(get, lambda mesh, value: None)
