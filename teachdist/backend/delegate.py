"""Delegation: another backend does the work, this one keeps watching.

    dist.init_process_group("teachdist", pg_options=teachdist.Options(delegate="gloo"))

An engineer whose real job hangs changes that one line. gloo or NCCL still move the data, at
their speed; but every call has a number, a place in the program and an entry on the board, so a
rank that waits in vain says for whom, a call that the others did not make is named, and one
rank's failure frees the others.

    device     who does it
    cpu        this package, or what `delegate` names
    cuda       NCCL if it is there and every rank has a GPU of its own; else this package, through
               host memory, so that several ranks can share one GPU (NCCL can't)

Which of the two serves CUDA is settled in the group's first collective on CUDA tensors, from what
all ranks say about their GPU. Point to point goes through host memory unless `delegate` says nccl
in so many words, because NCCL knows neither tags nor receiving from anybody.

What the board can't see is the data: two ranks of different hosts that call different things with
equal sizes may compute nonsense unnoticed, as they would without this package. On one host they
are told (`_compare`).
"""

import json
import threading
import time
from concurrent.futures import Future, wait
from datetime import timedelta

import torch
import torch.distributed as dist

from teachdist.backend import failure
from teachdist.backend.backend import Backend
from teachdist.backend.handed import HandedMail, HandedWork, describe, first_tensor
from teachdist.backend.member import seconds
from teachdist.backend.overseen import overseen
from teachdist.backend.profiling import opened
from teachdist.diagnose import Watch, call_site, judge
from teachdist.diagnose.log import log
from teachdist.links import LinkError, Patience, PeerLost, TimedOut
from teachdist.links.board import IN_CALL
from teachdist.links.roster import until_ready
from teachdist.links.waiting import TICK

# Native backends that hang in a call that failed: their end would wait for it.
_abandoned = []


class Natives:
    """The native backends of one rank in one group, made when first needed.

    wanted: {device type: name of a backend}; NCCL for CUDA is used without being named.
    """

    def __init__(self, member, wanted):
        self._member = member
        self._wanted = wanted
        self._made = {}  # (generation, device type) -> backend or None

    def explicit(self, device):
        """Whether the options name a backend for this type of device."""
        return device in self._wanted

    def of(self, tensor):
        """The native backend for a tensor's device (None: the CPU's), or None."""
        device = "cpu" if tensor is None else tensor.device.type
        key = self._member.generation, device
        if key not in self._made:
            self._made[key] = self._make(device, tensor)
        return self._made[key]

    def _make(self, device, tensor):
        member = self._member
        name = self._wanted.get(device)
        if device == "cuda" and (name == "nccl" or device not in self._wanted):
            shared = self._shared_gpus(tensor)
            if shared and name == "nccl":
                raise dist.DistBackendError(
                    f'group "{member.title}": {shared}, and NCCL needs a GPU of its own for each '
                    "rank. Call torch.cuda.set_device(LOCAL_RANK) before anything else; or leave "
                    "delegate= out, then data goes through host memory."
                )
            if shared and member.rank == 0:
                log.warning("%s: CUDA tensors go through host memory", shared)
            name = None if shared else "nccl"
        if name is None:
            return None
        # A connection of its own: whoever waits on a store's client keeps all others waiting.
        store = dist.PrefixStore(f"native/{member.generation}/{device}", member.shared.clone())
        place = store, member.rank, member.size, member.timeout
        return self._together(name, lambda: make_native(name, *place))

    def _together(self, name, make):
        """Make a native backend, for which all ranks must come; by a thread, as it waits in C++."""
        member = self._member
        words = f"the first call that goes to {name}"
        patience = Patience(member.timeout, Watch(member.view, words), words)
        made = Future()
        threading.Thread(target=_fill, args=(made, make), daemon=True).start()
        page, place = member.page, member.page.begin_mail(member.generation, words)
        try:
            while not wait([made], TICK).done:
                patience.over(rank for rank in range(member.size) if rank != member.rank)
        except LinkError as error:
            raise failure.fail(member, error, None, words) from error
        finally:
            page.end_mail(place)
        return made.result()

    def _shared_gpus(self, tensor):
        """Why NCCL cannot serve, in words: it is not there, or ranks use one GPU; else ""."""
        member = self._member
        mine = gpu_of(tensor) if dist.is_nccl_available() else ""
        about = [member.roster.host, mine, str(tensor.device)]
        member.shared.set(f"gpu/{member.generation}/{member.rank}", json.dumps(about))
        patience = Patience(member.timeout, Watch(member.view, "its first call on CUDA tensors"))
        said = [
            until_ready(
                lambda key=f"gpu/{member.generation}/{rank}": self._read(key), rank, patience
            )
            for rank in range(member.size)
        ]
        users = {}
        for number, (host, gpu, name) in zip(member.global_ranks, said, strict=True):
            if not gpu:
                return f"rank {number} has no NCCL"
            users.setdefault((host, gpu), []).append((number, name))
        most = max(users.values(), key=len)
        if len(most) == 1:
            return ""
        names = " and ".join(dict.fromkeys(name for _, name in most))
        return f"{judge.ranks_words([number for number, _ in most])} use one GPU ({names})"

    def _read(self, key):
        shared = self._member.shared
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
            f"delegate={name!r}: expected gloo, nccl, or a backend registered with a creator of "
            "(store, rank, size, timeout)"
        )
    return plugin.creator_fn(store, rank, size, limit)


class Delegating(Backend):
    """A `Backend` that hands calls to native backends where the options or the devices say so."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._natives = Natives(self.member, self._options.delegate or {})

    def _hand_over(self, native, name, args, opts):
        """Have `native` run a collective; a Work."""
        member = self.member
        call = describe(name, args, opts)
        member.usable(call.words)
        words = f"{call.words} at {call_site()}"
        limit = seconds(getattr(opts, "timeout", None), member.timeout)
        asynchronous = getattr(opts, "asyncOp", True) or call.on_gpu
        if hasattr(opts, "asyncOp"):
            opts.asyncOp = True
        closing = opened(call.title, call.inputs)
        with member.numbering:
            number = member.sequence = member.sequence + 1
            # The board first: when the others' data has come, they can see what it was.
            same = member.routes._number(call.agree)
            member.page.write(IN_CALL, member.generation, number, words, same)
            theirs = getattr(native, name)(*args, opts)
            work = HandedWork(call.outputs, theirs if call.on_gpu else None, closing)

            def job():
                try:
                    self._wait_for(native, theirs, number, same, call, words, limit)
                except BaseException as error:  # noqa: BLE001  it travels to whoever waits
                    work.finish(error)
                else:
                    work.finish()

            here = not asynchronous and member._turns.mine()
            if not here:
                member._turns.submit(job)
        if here:
            try:
                job()
            finally:
                member._turns.over()
        if not asynchronous:
            work.wait()
        return self._batched(work)

    def _wait_for(self, native, theirs, number, same, call, words, limit):
        member = self.member
        began = time.monotonic()
        try:
            if member.unheard.calls:
                member.unheard.look_back(member)
            with overseen(member, number, same, words):
                while not _over(theirs, call.on_gpu):
                    if member.broken is not None:
                        raise failure.Released(member.broken.message)
                    if time.monotonic() - began > limit:
                        late = TimedOut(f"{words}: nothing came within the timeout of {limit:g} s")
                        raise failure.fail(member, late, number, words)
                self._compare(number, same, words)
        except failure.Released:
            self._natives.abandon(native)
            raise
        except RuntimeError as error:
            self._natives.abandon(native)
            if member.broken is not None:
                raise
            lost = PeerLost(f"{native.name()} says: {error}")
            raise failure.fail(member, lost, number, words) from error

    def _compare(self, number, same, words):
        """The data has moved; but was it the same call everywhere? The board of this host knows."""
        member = self.member
        member.unheard.note(number, same, words, set(range(member.size)) - {member.rank})
        member.unheard.look_back(member)

    # -- point to point ------------------------------------------------------------------------

    def _native_mail(self, tensors):
        tensor = first_tensor(tensors)
        if tensor is None or not self._natives.explicit(tensor.device.type):
            return None
        return self._natives.of(tensor)

    def send(self, tensors, dst, tag):
        """Send a tensor to group rank `dst`."""
        native = self._native_mail(tensors)
        if native is None:
            return super().send(tensors, dst, tag)
        return self._mail("send", tensors, native.send(tensors, dst, tag), dst)

    def recv(self, tensors, src, tag):
        """Receive a tensor from group rank `src`."""
        native = self._native_mail(tensors)
        if native is None:
            return super().recv(tensors, src, tag)
        return self._mail("recv", tensors, native.recv(tensors, src, tag), src)

    def recv_anysource(self, tensors, tag):
        """Receive a tensor from whoever sends one, if the native backend can do that."""
        native = self._native_mail(tensors)
        if native is None:
            return super().recv_anysource(tensors, tag)
        return self._mail("recvAnySource", tensors, native.recv_anysource(tensors, tag), None)

    def _mail(self, title, tensors, theirs, peer):
        work = HandedMail(self.member, title, tensors, theirs, peer, opened(title, tensors))
        return self._batched(work)

    # -- the end -------------------------------------------------------------------------------

    def shutdown(self):
        """Leave the group, and the native ones."""
        super().shutdown()
        self._natives.close()


def _over(theirs, on_gpu):
    """Wait a little for a native Work; whether it is over. Raises what it raises."""
    if on_gpu:  # its wait() would make a stream wait, not this thread
        if not theirs.is_completed():
            time.sleep(min(TICK, 0.02))
            return False
        return True
    try:
        theirs.wait(timedelta(seconds=TICK))
    except RuntimeError:
        if theirs.is_completed():
            raise
        return False
    return True


def _delegating(name):
    own = getattr(Backend, name)

    def method(self, *args):
        *arguments, opts = args
        native = self._natives.of(first_tensor(arguments))
        if native is None:
            return own(self, *args)
        return self._hand_over(native, name, arguments, opts)

    method.__name__ = name
    method.__doc__ = own.__doc__
    return method


for _name in (
    "broadcast",
    "allreduce",
    "allreduce_coalesced",
    "reduce",
    "allgather",
    "allgather_coalesced",
    "all_gather_single",
    "all_gather_single_coalesced",
    "gather",
    "scatter",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_single_coalesced",
    "alltoall",
    "all_to_all_single",
    "barrier",
):
    setattr(Delegating, _name, _delegating(_name))
