"""The native backends of a rank: gloo or NCCL, made when a call first needs them.

Which of the two serves CUDA is settled in the group's first collective on CUDA tensors, from what
all ranks say about their GPU. Making a native backend is a meeting of its own, for which all ranks
must come; it waits in C++, deaf to Ctrl-C, so a thread does it while this one watches.
"""

import json
import threading
from concurrent.futures import Future, wait
from datetime import timedelta

import torch
import torch.distributed as dist

from teachdist.backend.group import abort
from teachdist.diagnose import Watchdog
from teachdist.diagnose.log import log
from teachdist.links import Deadline, LinkError
from teachdist.links.rendezvous.peers import until_ready
from teachdist.links.waiting import TICK
from teachdist.words import ranks_words

# Native backends that hang in a call that failed: their end would wait for it.
_abandoned = []


class Natives:
    """The native backends of one rank in one group, made when first needed.

    wanted: {device type: name of a backend}; NCCL for CUDA is used without being named.
    """

    def __init__(self, communicator, wanted):
        self._communicator = communicator
        self._wanted = wanted
        self._made = {}  # (generation, device type) -> backend or None

    def explicit(self, device):
        """Whether the options name a backend for this type of device."""
        return device in self._wanted

    def of(self, tensor):
        """The native backend for a tensor's device (None: the CPU's), or None."""
        device = "cpu" if tensor is None else tensor.device.type
        key = self._communicator.generation, device
        if key not in self._made:
            self._made[key] = self._make(device, tensor)
        return self._made[key]

    def _make(self, device, tensor):
        communicator = self._communicator
        name = self._wanted.get(device)
        if device == "cuda" and (name == "nccl" or device not in self._wanted):
            shared = self._shared_gpus(tensor)
            if shared and name == "nccl":
                raise dist.DistBackendError(
                    f'group "{communicator.title}": {shared}, and NCCL needs a GPU of its own '
                    "for each rank. Call torch.cuda.set_device(LOCAL_RANK) before anything else; "
                    "or leave delegate= out, then data goes through host memory."
                )
            if shared and communicator.rank == 0:
                log.warning("%s: CUDA tensors go through host memory", shared)
            name = None if shared else "nccl"
        if name is None:
            return None
        # A connection of its own: whoever waits on a store's client keeps all others waiting.
        store = dist.PrefixStore(
            f"native/{communicator.generation}/{device}", communicator.shared.clone()
        )
        place = store, communicator.rank, communicator.size, communicator.timeout
        return self._together(name, lambda: make_native(name, *place))

    def _together(self, name, make):
        """Make a native backend, for which all ranks must come."""
        communicator = self._communicator
        words = f"the first call that goes to {name}"
        deadline = Deadline(communicator.timeout, Watchdog(communicator.view, words), words)
        made = Future()
        threading.Thread(target=_fill, args=(made, make), daemon=True).start()
        page, place = (
            communicator.page,
            communicator.page.begin_message(communicator.generation, words),
        )
        try:
            while not wait([made], TICK).done:
                deadline.over(
                    rank for rank in range(communicator.size) if rank != communicator.rank
                )
        except LinkError as error:
            raise abort.fail(communicator, error, None, words) from error
        finally:
            page.end_message(place)
        return made.result()

    def _shared_gpus(self, tensor):
        """Why NCCL cannot serve, in words: it is not there, or ranks use one GPU; else ""."""
        communicator = self._communicator
        mine = gpu_of(tensor) if dist.is_nccl_available() else ""
        about = [communicator.peers.host, mine, str(tensor.device)]
        communicator.shared.set(
            f"gpu/{communicator.generation}/{communicator.rank}", json.dumps(about)
        )
        deadline = Deadline(
            communicator.timeout, Watchdog(communicator.view, "its first call on CUDA tensors")
        )
        said = [
            until_ready(
                lambda key=f"gpu/{communicator.generation}/{rank}": self._read(key), rank, deadline
            )
            for rank in range(communicator.size)
        ]
        users = {}
        for number, (host, gpu, name) in zip(communicator.global_ranks, said, strict=True):
            if not gpu:
                return f"rank {number} has no NCCL"
            users.setdefault((host, gpu), []).append((number, name))
        most = max(users.values(), key=len)
        if len(most) == 1:
            return ""
        names = " and ".join(dict.fromkeys(name for _, name in most))
        return f"{ranks_words([number for number, _ in most])} use one GPU ({names})"

    def _read(self, key):
        shared = self._communicator.shared
        return json.loads(shared.get(key)) if shared.check([key]) else None

    def abandon(self, native):
        """A call on it failed: it may hang for long, so it is left alone."""
        _abandoned.append(native)
        for key in [key for key, made in self._made.items() if made is native]:
            self._made[key] = None

    def close(self):
        """Leave the native groups."""
        made, self._made = self._made, {}
        for native in made.values():
            if native is not None and native not in _abandoned:
                native.shutdown()


def _fill(future, make):
    try:
        future.set_result(make())
    except BaseException as error:  # noqa: BLE001  it travels to whoever waits
        future.set_exception(error)


def gpu_of(tensor):
    """What distinguishes the GPU of a tensor from all others."""
    return str(torch.cuda.get_device_properties(tensor.device).uuid)


def make_native(name, store, rank, size, timeout):
    """A native backend by name: gloo, nccl, or one that somebody has registered."""
    limit = timedelta(seconds=timeout)
    if name == "gloo":
        return dist.ProcessGroupGloo(store, rank, size, limit)
    if name == "nccl":
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = limit
        return dist.ProcessGroupNCCL(store, rank, size, options)
    plugin = dist.Backend._plugins.get(name.upper())
    if plugin is None or plugin.extended_api:
        raise ValueError(
            f"delegate={name!r} (or TEACHDIST_DELEGATE): expected gloo, nccl, or a backend "
            "registered with a creator of (store, rank, size, timeout)"
        )
    return plugin.creator_fn(store, rank, size, limit)
