"""The backend of a rehearsal: what torch calls on a virtual rank.

It takes torch's calls apart and checks them as the real one does (`backend/backend.py`); what is
different is where they go: to a meeting of threads instead of links between processes.
"""

import torch

from teachdist.backend.backend import Backend, BackendBase
from teachdist.backend.calls import binding
from teachdist.backend.calls.binding import _call
from teachdist.backend.calls.call import describe, name_of
from teachdist.backend.calls.checks import check, check_output, check_whole, one, same_count
from teachdist.backend.calls.flat import cut, flat, room
from teachdist.backend.calls.reduce_ops import reducer, short
from teachdist.backend.execution.options import Options
from teachdist.rehearse import point_to_point
from teachdist.rehearse.communicator import Communicator
from teachdist.rehearse.monitored import monitored_barrier
from teachdist.rehearse.values import gather_lists, gather_whole, scatter_whole


class Rehearsed(Backend):
    """A process group's backend on one virtual rank, by whatever name torch knows it."""

    def __init__(self, job, name, ranks, rank, timeout, options, title):
        BackendBase.__init__(self, rank, len(ranks))
        self._job, self._title = job, title
        self._options = options if isinstance(options, Options) else Options(timeout=timeout)
        self._batch = None
        self._children = 0
        actor = job.scheduler.me()
        group = job.group(actor.rank, name, ranks)
        limit = timeout.total_seconds() if timeout else 1800.0
        self.communicator = Communicator(job, actor.rank, group, rank, name, limit, self._options)
        job.keep.append(self)

    def getBackendName(self):  # noqa: N802  torch's name
        """The name that the program asked for."""
        return self._title

    def all_gather_single(self, output, input, opts):  # noqa: A002  torch's name
        """`output` becomes all inputs, one behind the other."""
        call = self._whole_gather(output, input)
        return self._run(opts, "_all_gather_base", [input], [output], call)

    _allgather_base = all_gather_single

    def reduce_scatter_single(self, output, input, opts):  # noqa: A002
        """Rank d's output becomes the reduction of the d-th part of everybody's input."""
        call = self._whole_scatter(output, input, opts.reduceOp)
        return self._run(opts, "_reduce_scatter_base", [input], [output], call)

    _reduce_scatter_base = reduce_scatter_single

    def all_gather_single_coalesced(self, outputs, inputs, opts):
        """all_gather_single of several tensors."""
        todo = [self._whole_gather(o, i) for o, i in zip(outputs, inputs, strict=True)]
        return self._run(opts, "_all_gather_base", inputs, list(outputs), *todo)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def reduce_scatter_single_coalesced(self, outputs, inputs, opts):
        """reduce_scatter_single of several tensors."""
        pairs = zip(outputs, inputs, strict=True)
        todo = [self._whole_scatter(o, i, opts.reduceOp) for o, i in pairs]
        return self._run(opts, "_reduce_scatter_base", inputs, list(outputs), *todo)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def allgather(self, output_lists, inputs, opts):
        """`output_lists[0][s]` becomes rank s's input."""
        same_count(output_lists, inputs, "all_gather", "output_lists", "inputs")
        pairs = zip(output_lists, inputs, strict=True)
        todo = [self._list_gather(outs, own) for outs, own in pairs]
        outputs = [t for outs in output_lists for t in outs]
        return self._run(opts, "all_gather", inputs, outputs, *todo)

    def _list_gather(self, outputs, tensor):
        """Without a look at each of a million tensors, if they are of the plainest kind."""
        size = self.communicator.size
        plain = (
            len({t.data_ptr() for t in outputs}) == size == len(outputs)
            and {(t.dtype, t.shape) for t in outputs} == {(tensor.dtype, tensor.shape)}
            and tensor.numel()
            and all(t.is_contiguous() for t in outputs)
        )
        if not plain or tensor.device.type != "cpu" or tensor.layout != torch.strided:
            return self.communicator.call(binding.all_gather, outputs, tensor)
        call = _call("all_gather", describe("all_gather", tensor), tensor, outputs, size)
        call.nbytes *= size
        call.agree = short(tensor.dtype), tensor.numel(), "each"
        rank, source = self.communicator.rank, flat(tensor)
        call.bind = lambda k: ({rank: source}, {s: flat(t) for s, t in enumerate(outputs)})
        call.whole, call.parts = gather_lists, (outputs, tensor.detach())
        return call

    # A thousand ranks would cut a tensor into a million pieces; whole ones are enough.

    def _whole_gather(self, output, tensor):
        op, size = "all_gather_single", self.communicator.size
        check(tensor, op, "input")
        check_output(output, op, "output")
        check_whole(output, tensor, size, op, "output", "input")
        out, source = room(output), flat(tensor)
        call = _call("all_gather", describe(op, tensor), source, [output], size)
        call.nbytes = output.numel() * output.element_size()
        rank = self.communicator.rank
        call.bind = lambda k: ({rank: source}, dict(enumerate(cut(out, size))))
        call.whole, call.parts = gather_whole, (out, source)
        call.writes(output, out)
        return call

    def _whole_scatter(self, output, tensor, op):
        name, size = "reduce_scatter_single", self.communicator.size
        check_output(output, name, "output")
        check(tensor, name, "input")
        check_whole(tensor, output, size, name, "input", "output")
        words = describe(name, tensor, name_of(op))
        how = reducer(op, output.dtype, words)
        out, source = room(output), flat(tensor)
        call = _call("reduce_scatter", words, out, [output], size, reducer=how)
        call.nbytes = tensor.numel() * tensor.element_size()
        call.agree = short(output.dtype), output.numel()
        rank = self.communicator.rank
        call.bind = lambda k: (dict(enumerate(cut(how.before(source, size), size))), {rank: out})
        call.whole, call.parts = scatter_whole, (out, source)
        call.after = [out]
        call.writes(output, out)
        return call

    def monitored_barrier(self, opts, wait_all_ranks):
        """A barrier that names the ranks which did not come; no Work."""
        limit = opts.timeout.total_seconds()
        monitored_barrier(
            self.communicator, self.communicator.timeout if limit < 0 else limit, wait_all_ranks
        )

    # -- point to point --------------------------------------------------------------------

    def send(self, tensors, dst, tag):
        """Send a tensor to group rank `dst`."""
        return self._message("send", point_to_point.send, one(tensors, 0, "send"), dst, tag)

    def recv(self, tensors, src, tag):
        """Receive a tensor from group rank `src`."""
        return self._message("recv", point_to_point.receive, one(tensors, 0, "recv"), src, tag)

    def recv_anysource(self, tensors, tag):
        """Receive a tensor from whoever sends one; the Work knows who did."""
        return self._message("recv", point_to_point.receive, one(tensors, 0, "recv"), None, tag)

    def _logs(self):
        """Those of open traces, and the rank's own."""
        return [*super()._logs(), self.communicator.whose.log]

    # -- groups ----------------------------------------------------------------------------

    def _child(self, store, ranks, opts, how):
        parent = self.communicator
        options = opts if isinstance(opts, Options) else self._options
        names = [parent.global_ranks[r] for r in ranks]
        name = f"{parent.name}/{how}:{','.join(map(str, ranks))}"
        limit = options.limit(parent.timeout)
        return Rehearsed(
            self._job, name, names, ranks.index(parent.rank), limit, options, self._title
        )

    def shutdown(self):
        """Leave the group (destroy_process_group)."""
        self.communicator.left = True
        self._job.left(self.communicator)

    def abort(self):
        """Leave at once; ranks that wait for this one are told."""
        communicator = self.communicator
        self._job.failures.break_group(
            communicator.group, f"{communicator.who(communicator.rank)} aborted the group"
        )
        self.shutdown()


def creator(job, title):
    """What torch calls to make a backend named `title`, with the extended interface."""

    def create(backend_options, pg_options):
        ranks = backend_options.global_ranks_in_group or range(backend_options.group_size)
        return Rehearsed(
            job,
            backend_options.group_id,
            list(ranks),
            backend_options.group_rank,
            backend_options.timeout,
            pg_options,
            title,
        )

    return create
