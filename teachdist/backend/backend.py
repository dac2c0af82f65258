"""The backend: what torch calls. Each method turns torch's arguments into a `Call`, no more.

torch.distributed hands a collective to `Backend.allreduce(tensors, opts)` and the like, and
expects a Work. `opts.asyncOp` says whether the caller will wait at once; if so, the call runs
right here on the caller's thread, which saves two changes of thread.

Source: torch.distributed documentation, "Custom backends", "Methods".
"""

import torch.distributed as dist

from teachdist import tracing
from teachdist.backend.calls import binding, noted
from teachdist.backend.calls.checks import by_rank, one, same_count
from teachdist.backend.calls.flat import outside_inference
from teachdist.backend.calls.sparse import all_reduce_sparse
from teachdist.backend.execution.options import Options
from teachdist.backend.execution.profiling import opened, profiling
from teachdist.backend.group.communicator import Communicator, seconds
from teachdist.backend.group.joining import stay
from teachdist.backend.p2p import point_to_point
from teachdist.backend.p2p.monitored import monitored_barrier
from teachdist.backend.torch_patches import in_a_batch
from teachdist.backend.work import AllWorks

BackendBase = getattr(dist, "BackendBase", None) or dist._Backend

# torch keeps only the C++ half alive in some cases; the Python half must not be collected.
alive = set()


class Backend(BackendBase):
    """A process group's backend "teachdist" on one rank.

    store: where the ranks of the group find each other. rank, size: in the group. timeout: a
    timedelta. Made by torch through `register`; tests make it directly.
    """

    def __init__(self, store, rank, size, timeout, name="0", global_ranks=(), options=None):
        super().__init__(rank, size)
        self._options = options if options is not None else Options(timeout=timeout)
        limit = seconds(timeout, 1800.0)
        self.communicator = Communicator(
            store, rank, size, name, global_ranks, limit, self._options
        )
        self._batch = None
        self._children = 0
        alive.add(self)

    # -- what torch asks about the backend ---------------------------------------------------

    def getBackendName(self):  # noqa: N802  torch's name
        """The name it is registered under."""
        return "teachdist"

    @property
    def options(self):
        """The options the group was made with."""
        return self._options

    @property
    def supports_coalescing(self):
        """Whether operations can be batched: yes, but each of a batch is a request of its own."""
        return not in_a_batch()

    supports_splitting = property(lambda self: True)
    supports_shrinking = property(lambda self: True)
    supports_reconfigure = property(lambda self: False)
    supports_window = property(lambda self: False)
    supports_time_estimate = property(lambda self: False)
    _supports_time_estimate = property(lambda self: False)

    def supports_tensor_alloc(self, device_index):
        """Whether the backend has an allocator of its own: no."""
        return False

    def _get_sequence_number_for_group(self):
        return self.communicator.sequence

    def _set_sequence_number_for_group(self):
        """Torch asks for a first number: it is 0."""

    def set_timeout(self, timeout):
        """How long later calls may wait."""
        self.communicator.timeout = seconds(timeout, self.communicator.timeout)

    # -- collectives ---------------------------------------------------------------------------

    def _collective(self, opts, title, inputs, outputs, make, *arguments):
        """Run what make(*arguments) describes, or the same call as before."""
        call = self.communicator.persistent.call(make, *arguments)
        return self._run(opts, title, inputs, outputs, call)

    def _run(self, opts, title, inputs, outputs, *todo):
        """Run one Call or several as one operation, which the profiler knows as `title`.

        outputs: what the future will hold; None: those of the Call.
        """
        asynchronous = self._batch is not None or getattr(opts, "asyncOp", True)
        logs = self._logs()
        note = noted.collectives(self.communicator, todo, logs) if logs else None
        if note is not None and not asynchronous:
            note.awaited()
        work = self.communicator.run(
            todo,
            asynchronous,
            opts,
            outputs,
            opened(title, inputs) if profiling() else None,
            inputs,
        )
        if note is not None:
            self._keep_note(work, note, asynchronous)
        return work if self._batch is None else self._batched(work)

    def _logs(self):
        """Where to note what is called: the logs of open traces."""
        return tracing.logs()

    def _message(self, kind, begin, tensor, peer, tag):
        """A send or a receive; begin(communicator, tensor, peer, tag) has it under way."""
        logs = self._logs()
        if not logs:
            return self._batched(begin(self.communicator, tensor, peer, tag))
        words = point_to_point.words(self.communicator, kind, tensor, peer, tag)
        note = noted.message(self.communicator, kind, words, tensor, peer, tag, logs)
        work = begin(self.communicator, tensor, peer, tag)
        self._keep_note(work, note)
        return self._batched(work)

    @staticmethod
    def _keep_note(work, note, asynchronous=True):
        """The Work tells its note when it is over, which may have been before it had one."""
        if not asynchronous:
            note.ended()
            note.resumed()
            return
        work.noted = note
        if work.over:
            note.ended()

    def _batched(self, work):
        if self._batch is not None:
            self._batch.append(work)
        return work

    @property
    def _place(self):
        return self.communicator.persistent.place

    @outside_inference
    def broadcast(self, tensors, opts):
        """Every rank's tensor becomes the root's."""
        tensor = one(tensors, opts.rootTensor, "broadcast")
        about = tensor, opts.rootRank
        return self._collective(opts, "broadcast", tensors, [tensor], binding.broadcast, *about)

    @outside_inference
    def allreduce(self, tensors, opts):
        """Every rank's tensor becomes the reduction of all."""
        if len(tensors) == 1 and tensors[0].is_sparse:
            return self.allreduce_sparse(tensors, opts)
        again, op = self.communicator.persistent, opts.reduceOp
        todo = [again.call(binding.all_reduce, tensor, op) for tensor in tensors]
        return self._run(opts, "all_reduce", tensors, tensors, *todo)

    def allreduce_coalesced(self, tensors, opts):
        """all_reduce of several tensors."""
        return self.allreduce(tensors, opts)

    @outside_inference
    def allreduce_sparse(self, tensors, opts):
        """all_reduce of a sparse COO tensor; ranks may have entries in different places."""
        todo = all_reduce_sparse(one(tensors, 0, "all_reduce"), opts.reduceOp, *self._place)
        return self._run(opts, "all_reduce", tensors, tensors, *todo)

    @outside_inference
    def reduce(self, tensors, opts):
        """The root's tensor becomes the reduction of all."""
        tensor = one(tensors, opts.rootTensor, "reduce")
        about = tensor, opts.reduceOp, opts.rootRank
        return self._collective(opts, "reduce", tensors, [tensor], binding.reduce, *about)

    @outside_inference
    def allgather(self, output_lists, inputs, opts):
        """`output_lists[0][s]` becomes rank s's input."""
        same_count(output_lists, inputs, "all_gather", "output_lists", "inputs")
        make, pairs = binding.all_gather, zip(output_lists, inputs, strict=True)
        todo = [self.communicator.persistent.call(make, outs, own) for outs, own in pairs]
        outputs = [t for outs in output_lists for t in outs]
        return self._run(opts, "all_gather", inputs, outputs, *todo)

    @outside_inference
    def allgather_coalesced(self, output_lists, inputs, opts):
        """all_gather of several tensors; `output_lists[s][i]` becomes rank s's i-th input."""
        by_rank(output_lists, inputs, self.communicator.size)
        lists = [list(outs) for outs in zip(*output_lists, strict=True)]
        return self.allgather(lists, inputs, opts)

    @outside_inference
    def all_gather_single(self, output, input, opts):  # noqa: A002  torch's name
        """`output` becomes all inputs, one behind the other."""
        make, about = binding.all_gather_single, (output, input)
        return self._collective(opts, "_all_gather_base", [input], [output], make, *about)

    _allgather_base = all_gather_single

    @outside_inference
    def all_gather_single_coalesced(self, outputs, inputs, opts):
        """all_gather_single of several tensors."""
        same_count(outputs, inputs, "all_gather_single", "outputs", "inputs")
        pairs = zip(outputs, inputs, strict=True)
        todo = [binding.all_gather_single(out, tensor, *self._place) for out, tensor in pairs]
        return self._run(opts, "_all_gather_base", inputs, list(outputs), *todo)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    @outside_inference
    def gather(self, output_lists, inputs, opts):
        """On the root `output_lists[0][s]` becomes rank s's input."""
        outputs = output_lists[0] if output_lists else []
        about = outputs, one(inputs, 0, "gather"), opts.rootRank
        return self._collective(opts, "gather", inputs, outputs, binding.gather, *about)

    @outside_inference
    def gather_single(self, output, input, opts):  # noqa: A002
        """On the root `output` becomes all inputs, one behind the other."""
        todo = binding.gather_single(output, input, opts.rootRank, *self._place)
        return self._run(opts, "gather", [input], None, todo)

    @outside_inference
    def scatter(self, outputs, input_lists, opts):
        """Rank d's output becomes the root's `input_lists[0][d]`."""
        inputs = input_lists[0] if input_lists else []
        output = one(outputs, 0, "scatter")
        about = output, inputs, opts.rootRank
        return self._collective(opts, "scatter", inputs, [output], binding.scatter, *about)

    @outside_inference
    def reduce_scatter(self, outputs, input_lists, opts):
        """Rank d's output becomes the reduction of everybody's `input_lists[0][d]`."""
        same_count(outputs, input_lists, "reduce_scatter", "outputs", "input_lists")
        pairs = zip(outputs, input_lists, strict=True)
        again, op = self.communicator.persistent, opts.reduceOp
        todo = [again.call(binding.reduce_scatter, out, ins, op) for out, ins in pairs]
        inputs = [t for ins in input_lists for t in ins]
        return self._run(opts, "reduce_scatter", inputs, list(outputs), *todo)

    @outside_inference
    def reduce_scatter_single(self, output, input, opts):  # noqa: A002
        """Rank d's output becomes the reduction of the d-th part of everybody's input."""
        make, about = binding.reduce_scatter_single, (output, input, opts.reduceOp)
        return self._collective(opts, "_reduce_scatter_base", [input], [output], make, *about)

    _reduce_scatter_base = reduce_scatter_single

    @outside_inference
    def reduce_scatter_single_coalesced(self, outputs, inputs, opts):
        """reduce_scatter_single of several tensors."""
        same_count(outputs, inputs, "reduce_scatter_single", "outputs", "inputs")
        pairs = zip(outputs, inputs, strict=True)
        op = opts.reduceOp
        todo = [binding.reduce_scatter_single(o, i, op, *self._place) for o, i in pairs]
        return self._run(opts, "_reduce_scatter_base", inputs, list(outputs), *todo)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    @outside_inference
    def alltoall(self, outputs, inputs, opts):
        """outputs[s] becomes rank s's inputs[this rank]."""
        make, about = binding.all_to_all, (outputs, inputs)
        return self._collective(opts, "all_to_all", inputs, list(outputs), make, *about)

    @outside_inference
    def all_to_all_single(self, output, input, output_splits, input_splits, opts):  # noqa: A002
        """Alltoall on parts of one tensor."""
        make = binding.all_to_all_single
        about = output, input, output_splits, input_splits
        return self._collective(opts, "all_to_all", [input], [output], make, *about)

    alltoall_base = all_to_all_single

    @outside_inference
    def barrier(self, opts):
        """Nobody leaves before everybody has come."""
        return self._collective(opts, "barrier", [], [], binding.barrier)

    @outside_inference
    def monitored_barrier(self, opts, wait_all_ranks):
        """A barrier that names the ranks which did not come; no Work."""
        limit = opts.timeout.total_seconds()
        limit = self.communicator.timeout if limit < 0 else limit
        monitored_barrier(self.communicator, limit, wait_all_ranks)

    # -- point to point ------------------------------------------------------------------------

    @outside_inference
    def send(self, tensors, dst, tag):
        """Send a tensor to group rank `dst`."""
        return self._message("send", point_to_point.send, one(tensors, 0, "send"), dst, tag)

    @outside_inference
    def recv(self, tensors, src, tag):
        """Receive a tensor from group rank `src`."""
        return self._message("recv", point_to_point.receive, one(tensors, 0, "recv"), src, tag)

    @outside_inference
    def recv_anysource(self, tensors, tag):
        """Receive a tensor from whoever sends one; the Work knows who did."""
        return self._message("recv", point_to_point.receive, one(tensors, 0, "recv"), None, tag)

    # -- several operations under one Work -----------------------------------------------------

    def start_coalescing(self):
        """From here on operations belong to one batch."""
        self._batch = []

    def end_coalescing(self):
        """One Work for the operations since `start_coalescing`."""
        batch, self._batch = self._batch, None
        return AllWorks(batch or [])

    # -- other groups --------------------------------------------------------------------------

    def split(self, store, ranks, opts):
        """A backend for some of this group's ranks, in that order.

        The documentation has None for the other ranks; torch 2.14 crashes when it gets it.
        """
        if self.communicator.rank not in ranks:
            raise ValueError(
                f"split: rank {self.communicator.rank} is not among ranks={list(ranks)}; only "
                "ranks of the new group split"
            )
        return self._child(store, list(ranks), opts, "split")

    def shrink(self, ranks_to_exclude, shrink_flags=0, opts_override=None):
        """A backend for all ranks of this group but some, which may be dead."""
        self._children += 1
        rest = [r for r in range(self.communicator.size) if r not in ranks_to_exclude]
        if self.communicator.rank not in rest:
            raise ValueError(
                f"shrink: rank {self.communicator.rank} is itself in ranks_to_exclude="
                f"{list(ranks_to_exclude)}; only the ranks that stay call shrink"
            )
        store = dist.PrefixStore(f"shrink/{self._children}", self.communicator.store)
        return self._child(store, rest, opts_override, "shrink")

    def _child(self, store, ranks, opts, how):
        parent = self.communicator
        options = opts if isinstance(opts, Options) else self._options
        names = [parent.global_ranks[r] for r in ranks]
        name = f"{parent.name}/{how}:{','.join(map(str, ranks))}"
        rank, limit = ranks.index(parent.rank), options.limit(parent.timeout)
        return Backend(store, rank, len(ranks), limit, name, names, options)

    # -- the end -------------------------------------------------------------------------------

    def shutdown(self):
        """Leave the group (destroy_process_group)."""
        if self.communicator.world is None:
            tracing.whole_job.end()
        stay(self.communicator)
        self.communicator.leave()
        alive.discard(self)

    def abort(self):
        """Leave at once; ranks that wait for this one are told."""
        self.communicator.release(
            f"{self.communicator.who(self.communicator.rank)} aborted the group"
        )
        self.shutdown()
