"""The backend: what torch calls. Each method turns torch's arguments into a `Call`, no more.

torch.distributed hands a collective to `Backend.allreduce(tensors, opts)` and the like, and
expects a Work. `opts.asyncOp` says whether the caller will wait at once; if so, the call runs
right here on the caller's thread, which saves two changes of thread.

Source: torch.distributed documentation, "Custom backends", "Methods".
"""

import atexit
import os

import torch.distributed as dist

from teachdist.backend import call as calls
from teachdist.backend.member import Member, seconds
from teachdist.backend.memory import flat, is_view_of, view_bytes
from teachdist.backend.options import Options
from teachdist.backend.work import patch_holder
from teachdist.links.header import number_of

BackendBase = getattr(dist, "BackendBase", None) or dist._Backend

# torch keeps only the C++ half alive in some cases; the Python half must not be collected.
_alive = set()


class Backend(BackendBase):
    """A process group's backend "teachdist" on one rank.

    store: where the ranks of the group find each other. rank, size: in the group. timeout: a
    timedelta. Made by torch through `register`; tests make it directly.
    """

    def __init__(self, store, rank, size, timeout, name="0", global_ranks=(), options=None):
        super().__init__(rank, size)
        self._options = options if options is not None else Options(timeout=timeout)
        limit = seconds(timeout, 1800.0)
        self.member = Member(store, rank, size, name, global_ranks, limit, self._options)
        _alive.add(self)

    # -- what torch asks about the backend ---------------------------------------------------

    def getBackendName(self):  # noqa: N802  torch's name
        """The name it is registered under."""
        return "teachdist"

    @property
    def options(self):
        """The options the group was made with."""
        return self._options

    supports_splitting = property(lambda self: False)
    supports_coalescing = property(lambda self: False)
    supports_shrinking = property(lambda self: False)
    supports_reconfigure = property(lambda self: False)
    supports_window = property(lambda self: False)
    supports_tensor_alloc = property(lambda self: False)
    supports_time_estimate = property(lambda self: False)
    _supports_time_estimate = property(lambda self: False)

    def _get_sequence_number_for_group(self):
        return self.member.sequence

    def _set_sequence_number_for_group(self):
        """Torch asks for a first number: it is 0."""

    def set_timeout(self, timeout):
        """How long later calls may wait."""
        self.member.timeout = seconds(timeout, self.member.timeout)

    # -- collectives ---------------------------------------------------------------------------

    def _run(self, one_or_more, opts, outputs=None):
        todo = one_or_more if isinstance(one_or_more, list) else [one_or_more]
        asynchronous = getattr(opts, "asyncOp", True)
        return self.member.run(todo, asynchronous, getattr(opts, "timeout", None), outputs)

    @property
    def _place(self):
        return self.member.rank, self.member.size

    def broadcast(self, tensors, opts):
        """Every rank's tensor becomes the root's."""
        tensor = tensors[opts.rootTensor]
        return self._run(calls.broadcast(tensor, opts.rootRank, *self._place), opts)

    def allreduce(self, tensors, opts):
        """Every rank's tensor becomes the reduction of all."""
        size = self.member.size
        return self._run([calls.all_reduce(t, opts.reduceOp, size) for t in tensors], opts, tensors)

    def allreduce_coalesced(self, tensors, opts):
        """all_reduce of several tensors."""
        return self.allreduce(tensors, opts)

    def reduce(self, tensors, opts):
        """The root's tensor becomes the reduction of all."""
        tensor = tensors[opts.rootTensor]
        return self._run(calls.reduce(tensor, opts.reduceOp, opts.rootRank, *self._place), opts)

    def allgather(self, output_lists, inputs, opts):
        """output_lists[0][s] becomes rank s's input."""
        todo = [
            calls.all_gather(outs, tensor, *self._place)
            for outs, tensor in zip(output_lists, inputs, strict=True)
        ]
        return self._run(todo, opts, [t for outs in output_lists for t in outs])

    def all_gather_single(self, output, input, opts):  # noqa: A002  torch's name
        """`output` becomes all inputs, one behind the other."""
        return self._run(calls.all_gather_single(output, input, *self._place), opts)

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(self, outputs, inputs, opts):
        """all_gather_single of several tensors."""
        todo = [
            calls.all_gather_single(out, tensor, *self._place)
            for out, tensor in zip(outputs, inputs, strict=True)
        ]
        return self._run(todo, opts, list(outputs))

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def gather(self, output_lists, inputs, opts):
        """On the root output_lists[0][s] becomes rank s's input."""
        outputs = output_lists[0] if output_lists else []
        return self._run(
            calls.gather(outputs, inputs[0], opts.rootRank, *self._place), opts, outputs
        )

    def scatter(self, outputs, input_lists, opts):
        """Rank d's output becomes the root's input_lists[0][d]."""
        inputs = input_lists[0] if input_lists else []
        return self._run(calls.scatter(outputs[0], inputs, opts.rootRank, *self._place), opts)

    def reduce_scatter(self, outputs, input_lists, opts):
        """Rank d's output becomes the reduction of everybody's input_lists[0][d]."""
        todo = [
            calls.reduce_scatter(out, inputs, opts.reduceOp, *self._place)
            for out, inputs in zip(outputs, input_lists, strict=True)
        ]
        return self._run(todo, opts, list(outputs))

    def reduce_scatter_single(self, output, input, opts):  # noqa: A002
        """Rank d's output becomes the reduction of the d-th part of everybody's input."""
        todo = calls.reduce_scatter_single(output, input, opts.reduceOp, *self._place)
        return self._run(todo, opts)

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(self, outputs, inputs, opts):
        """reduce_scatter_single of several tensors."""
        todo = [
            calls.reduce_scatter_single(out, tensor, opts.reduceOp, *self._place)
            for out, tensor in zip(outputs, inputs, strict=True)
        ]
        return self._run(todo, opts, list(outputs))

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def alltoall(self, outputs, inputs, opts):
        """outputs[s] becomes rank s's inputs[this rank]."""
        return self._run(calls.all_to_all(outputs, inputs, *self._place), opts, list(outputs))

    def all_to_all_single(self, output, input, output_splits, input_splits, opts):  # noqa: A002
        """Alltoall on parts of one tensor."""
        todo = calls.all_to_all_single(output, input, output_splits, input_splits, *self._place)
        return self._run(todo, opts)

    alltoall_base = all_to_all_single

    def barrier(self, opts):
        """Nobody leaves before everybody has come."""
        return self._run(calls.barrier(self.member.size), opts, [])

    # -- point to point ------------------------------------------------------------------------

    def send(self, tensors, dst, tag):
        """Send a tensor to group rank `dst`."""
        tensor = calls.check(tensors[0], "send", "tensor")
        values = flat(tensor)
        words = calls.describe("send", tensor, f"dst={self.member.who(dst)}", f"tag={tag}")
        work = self.member.send(view_bytes(values), dst, tag, words, [tensor], kind_of(tensor))
        work.keep = values  # the bytes must live until they are out
        return work

    def recv(self, tensors, src, tag):
        """Receive a tensor from group rank `src`."""
        return self._receive(tensors[0], src, tag, f"src={self.member.who(src)}")

    def recv_anysource(self, tensors, tag):
        """Receive a tensor from whoever sends one; the Work knows who did."""
        return self._receive(tensors[0], None, tag, "src=any")

    def _receive(self, tensor, src, tag, source):
        calls.check(tensor, "recv", "tensor")
        values = flat(tensor)
        words = calls.describe("recv", tensor, source, f"tag={tag}")

        def landed():
            if not is_view_of(values, tensor):
                tensor.detach().copy_(values.view(tensor.shape))

        view, kind = view_bytes(values), kind_of(tensor)
        return self.member.receive(view, src, tag, words, [tensor], kind, landed)

    # -- the end -------------------------------------------------------------------------------

    def shutdown(self):
        """Leave the group (destroy_process_group)."""
        self.member.leave()
        _alive.discard(self)

    def abort(self):
        """Leave at once; ranks that wait for this one are told."""
        self.member.release(f"{self.member.who(self.member.rank)} aborted the group")
        self.shutdown()


def kind_of(tensor):
    """A fingerprint of what a message holds: the dtype; its length is checked apart."""
    return number_of(f"mail {tensor.dtype}")


def create(backend_options, pg_options):
    """Made by torch for each group: the creator with `extended_api`."""
    options = pg_options
    timeout = backend_options.timeout
    if options is None:
        options = Options(timeout=timeout)
    elif not isinstance(options, Options):
        raise TypeError(
            f'pg_options of backend "teachdist" must be teachdist.Options, got '
            f"{type(options).__name__}"
        )
    return Backend(
        backend_options.store,
        backend_options.group_rank,
        backend_options.group_size,
        timeout,
        backend_options.group_id,
        backend_options.global_ranks_in_group,
        options,
    )


def register():
    """Make `init_process_group("teachdist")` work; torch calls it through the entry point."""
    patch_holder()
    if "teachdist" not in dist.Backend.backend_list:
        dist.Backend.register_backend("teachdist", create, extended_api=True, devices=["cpu"])


@atexit.register
def _leave_all():
    for backend in list(_alive):
        if backend.member.pid == os.getpid():
            backend.shutdown()


def members():
    """The memberships of this process that are not over."""
    return [b.member for b in _alive if b.member.pid == os.getpid()]
