"""`device_as="cpu"`: a program for CUDA on ranks that have no GPU.

Whatever names a CUDA device gets a CPU one: tensors, modules, meshes, groups. Streams and events
are stand-ins that are always done, and memory is not counted: on the CPU one operation is over
before the next begins. So values are right, and times are those of the clock that was asked for.
"""

import contextlib
import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel
from torch.overrides import TorchFunctionMode


class OnCpu(TorchFunctionMode):
    """While it is on, operations of this thread that name a CUDA device get the CPU."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function is torch.Tensor.cuda:
            return args[0]
        if function is torch.device:
            return torch.device("cpu") if _is_cuda(args[0]) else function(*args, **kwargs)
        if any(map(_is_cuda, args)) or any(map(_is_cuda, kwargs.values())):
            args = tuple(_mapped(value) for value in args)
            kwargs = {name: _mapped(value) for name, value in kwargs.items()}
        return function(*args, **kwargs)


def _is_cuda(value):
    if isinstance(value, torch.device):
        return value.type == "cuda"
    return isinstance(value, str) and (value == "cuda" or value.startswith("cuda:"))


def _mapped(value):
    return torch.device("cpu") if _is_cuda(value) else value


class Stream:
    """A stand-in for torch.cuda.Stream: what was put on it is done."""

    def __init__(self, *args, **kwargs):
        self.device = torch.device("cpu")

    def synchronize(self):
        """Done already."""

    wait_stream = wait_event = lambda self, other: None

    def record_event(self, event=None):
        """An event that has happened."""
        return event or Event()

    def query(self):
        """Whether all is done: yes."""
        return True


class Event:
    """A stand-in for torch.cuda.Event: it has happened, at the time on the rank's clock."""

    def __init__(self, *args, **kwargs):
        self._time = None

    def record(self, stream=None):
        """Note the time."""
        import time

        self._time = time.perf_counter()

    def elapsed_time(self, end):
        """Milliseconds to another event."""
        return (end._time - self._time) * 1e3

    def query(self):
        """Whether it has happened: yes."""
        return True

    synchronize = lambda self: None  # noqa: E731
    wait = lambda self, stream=None: None  # noqa: E731


def patch_cuda(patches, job):
    """Have torch.cuda answer as if each rank had a GPU, and CUDA devices be the CPU."""
    if job.device_as != "cpu":
        return
    per_host = job.machine.topology.ranks_per_host or len(job.ranks)
    nothing, zero = (lambda *a, **k: None), (lambda *a, **k: 0)
    answers = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: min(per_host, len(job.ranks)),
        "current_device": lambda: int(os.environ.get("LOCAL_RANK", 0)),
        "get_device_name": lambda *a: "the CPU, in place of a GPU",
        "current_stream": lambda *a: Stream(),
        "default_stream": lambda *a: Stream(),
        "stream": lambda stream: contextlib.nullcontext(),
        "device": lambda device: contextlib.nullcontext(),
        **dict.fromkeys(
            ("set_device", "synchronize", "empty_cache", "manual_seed", "manual_seed_all", "init"),
            nothing,
        ),
        **dict.fromkeys(
            ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"),
            zero,
        ),
        "reset_peak_memory_stats": nothing,
    }
    for name, answer in answers.items():
        patches.for_ranks(job.scheduler, torch.cuda, name, lambda _, answer=answer: answer)
    patches.attribute(torch.cuda, "Stream", Stream)  # for all threads: isinstance needs a class
    patches.attribute(torch.cuda, "Event", Event)
    for owner, name in [
        (dist, "init_process_group"),
        (dist, "init_device_mesh"),
        (torch.distributed.device_mesh, "init_device_mesh"),
        (DeviceMesh, "__init__"),
        (torch.nn.Module, "to"),
    ]:
        patches.for_ranks(job.scheduler, owner, name, _on_cpu)
    patches.for_ranks(job.scheduler, torch.nn.Module, "cuda", lambda _: lambda net, *a: net)
    patches.for_ranks(job.scheduler, DistributedDataParallel, "__init__", _without_devices)


def _on_cpu(original):
    def mapped(*args, **kwargs):
        kwargs.pop("device_id", None)
        args = ["cpu" if _is_cuda(value) else value for value in args]
        kwargs = {name: "cpu" if _is_cuda(value) else value for name, value in kwargs.items()}
        return original(*args, **kwargs)

    return mapped


def _without_devices(original):
    def init(self, module, device_ids=None, output_device=None, **kwargs):
        original(self, module, **kwargs)

    return init
