"""Backends in Python for tests: the documented minimal one, and one that records its calls."""

from datetime import timedelta

import torch
import torch.distributed as dist

Base = getattr(dist, "BackendBase", None) or dist._Backend
METHODS = {
    "broadcast",
    "allreduce",
    "allreduce_sparse",
    "allreduce_coalesced",
    "reduce",
    "allgather",
    "all_gather_single",
    "allgather_coalesced",
    "all_gather_single_coalesced",
    "gather",
    "gather_single",
    "scatter",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_single_coalesced",
    "all_to_all_single",
    "alltoall",
    "send",
    "recv",
    "recv_anysource",
    "barrier",
    "monitored_barrier",
}
CAPABILITIES = [
    "supports_splitting",
    "supports_coalescing",
    "supports_shrinking",
    "supports_reconfigure",
    "supports_window",
    "supports_time_estimate",
]


class MyWork(dist.Work):
    """The documented handle: a future that is already filled."""

    def __init__(self, result):
        super().__init__()
        self.future = torch.futures.Future()
        self.future.set_result(result)
        self.asked = []

    def wait(self, timeout=None):
        self.asked.append(timeout)
        return True

    def get_future(self):
        return self.future

    def is_completed(self):
        return True


class MyBackend(Base):
    """The documented minimal backend: one rank, for which SUM changes nothing."""

    supports_splitting = supports_coalescing = supports_shrinking = property(lambda self: False)
    supports_reconfigure = supports_window = property(lambda self: False)
    supports_time_estimate = property(lambda self: False)

    def __init__(self, store, rank, size, timeout):
        super().__init__(rank, size)
        self.made = store, rank, size, timeout
        self.num_allreduces = 0

    def getBackendName(self):  # noqa: N802
        return "my_backend"

    def allreduce(self, tensors, opts):
        self.num_allreduces += 1
        self.last = MyWork(tensors)
        return self.last

    def allreduce_int8(self, tensor):
        scale = tensor.abs().max().clamp(min=1e-12) / 127
        tensor.copy_((tensor / scale).round().clamp(-127, 127) * scale)
        return MyWork([tensor])

    def shutdown(self):
        pass


def recording():
    """A backend class that overrides everything and notes what is called."""

    def note(name):
        def method(self, *args):
            self.calls.append((name, args))
            outputs = args[0] if args and isinstance(args[0], list) else []
            return None if name == "monitored_barrier" else MyWork(outputs)

        return method

    body = {name: note(name) for name in METHODS}

    def begin(self):
        self.calls.append(("start_coalescing", ()))

    def end(self):
        self.calls.append(("end_coalescing", ()))
        return MyWork([])

    def init(self, store, rank, size, timeout):
        Base.__init__(self, rank, size)
        self.calls = []

    body |= {"start_coalescing": begin, "end_coalescing": end, "__init__": init}
    body |= {name: property(lambda self: False) for name in CAPABILITIES}
    body["supports_coalescing"] = property(lambda self: True)
    body["getBackendName"] = lambda self: "recording"
    body["_set_sequence_number_for_group"] = body["shutdown"] = lambda self: None
    body["_get_sequence_number_for_group"] = lambda self: 0
    return type("Recording", (Base,), body)


def group_of(kind, size=1, rank=0, **how):
    """Register `kind` under its name and make the default group of it; the backend object."""
    name = how.pop("name", "my_backend")
    if name not in dist.Backend.backend_list:
        dist.Backend.register_backend(name, kind, devices=["cpu"])
    dist.init_process_group(name, store=dist.HashStore(), rank=rank, world_size=size, **how)
    return dist.get_backend_impl()


def reach(name):
    """Call the function of torch.distributed from which a method is reached, in a world of 1."""
    t = torch.ones(1)
    lists = [[torch.zeros(1)]]
    group = dist.group.WORLD
    options = torch._C._distributed_c10d
    return {
        "broadcast": lambda: dist.broadcast(t, 0),
        "allreduce": lambda: dist.all_reduce(t),
        "allreduce_coalesced": lambda: dist.all_reduce_coalesced([t]),
        "reduce": lambda: dist.reduce(t, 0),
        "allgather": lambda: dist.all_gather(lists[0], t),
        "all_gather_single": lambda: dist.all_gather_single(torch.zeros(1), t),
        "allgather_coalesced": lambda: group.allgather_coalesced(
            lists, [t], options.AllgatherOptions()
        ),
        "all_gather_single_coalesced": lambda: group.all_gather_single_coalesced(
            [torch.zeros(1)], [t], options.AllgatherOptions()
        ),
        "gather": lambda: dist.gather(t, lists[0], 0),
        "scatter": lambda: dist.scatter(torch.zeros(1), [t], 0),
        "reduce_scatter": lambda: dist.reduce_scatter(torch.zeros(1), [t]),
        "reduce_scatter_single": lambda: dist.reduce_scatter_single(torch.zeros(1), t),
        "reduce_scatter_single_coalesced": lambda: group.reduce_scatter_single_coalesced(
            [torch.zeros(1)], [t], options.ReduceScatterOptions()
        ),
        "all_to_all_single": lambda: dist.all_to_all_single(torch.zeros(1), t),
        "alltoall": lambda: dist.all_to_all([torch.zeros(1)], [t]),
        "send": lambda: group.send([t], 0, 3),
        "recv": lambda: group.recv([t], 0, 3),
        "recv_anysource": lambda: group.recv_anysource([t], 3),
        "barrier": lambda: dist.barrier(),
        "monitored_barrier": lambda: dist.monitored_barrier(timeout=timedelta(seconds=2)),
    }[name]
