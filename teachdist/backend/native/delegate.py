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

Which of the two serves CUDA is settled once (`natives.py`). Point to point goes through host memory
unless `delegate` says nccl in so many words, because NCCL knows neither tags nor receiving from
anybody.

The calls are in a trace too, without rounds: how gloo does it, it does not tell. What the board
can't see is the data: two ranks of different hosts that call different things with
equal sizes may compute nonsense unnoticed, as they would without this package. On one host they
are told (`_compare`).
"""

import time
from datetime import timedelta

from teachdist import tracing
from teachdist.backend.backend import Backend
from teachdist.backend.calls import noted
from teachdist.backend.execution.profiling import opened
from teachdist.backend.group import abort
from teachdist.backend.group.communicator import seconds
from teachdist.backend.native.native_work import HandedMail, HandedWork, describe, first_tensor
from teachdist.backend.native.natives import Natives
from teachdist.backend.native.watched_calls import overseen
from teachdist.diagnose import call_site
from teachdist.links import PeerLost, TimedOut
from teachdist.links.board.writer import IN_CALL
from teachdist.links.waiting import TICK


class Delegating(Backend):
    """A `Backend` that hands calls to native backends where the options or the devices say so."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._natives = Natives(self.communicator, self._options.delegate or {})

    def _hand_over(self, native, name, args, opts):
        """Have `native` run a collective; a Work."""
        communicator = self.communicator
        call = describe(name, args, opts)
        communicator.usable(call.words)
        words = f"{call.words} at {call_site()}"
        limit = seconds(getattr(opts, "timeout", None), communicator.timeout)
        asynchronous = getattr(opts, "asyncOp", True) or call.on_gpu
        if hasattr(opts, "asyncOp"):
            opts.asyncOp = True
        closing = opened(call.title, call.inputs)
        logs = self._logs()
        note = noted.collectives(communicator, [call], logs) if logs else None
        if note is not None and not asynchronous:
            note.awaited()
        with communicator.call_order.lock:
            number = communicator.sequence = communicator.sequence + 1
            # The board first: when the others' data has come, they can see what it was.
            same = communicator.routes.fingerprint(call.agree)
            communicator.page.write(IN_CALL, communicator.generation, number, words, same)
            record = self._recorder(native, call, words, number)
            theirs = getattr(native, name)(*args, opts)
            work = HandedWork(call.outputs, theirs if call.on_gpu else None, closing)
            work.noted = note

            def job():
                try:
                    self._wait_for(native, theirs, number, same, call, words, limit)
                except BaseException as error:  # noqa: BLE001  it travels to whoever waits
                    work.finish(error)
                else:
                    if record is not None:
                        record.done()
                    work.finish()

            here = not asynchronous and communicator.call_order.mine()
            if not here:
                communicator.call_order.submit(job)
        if here:
            try:
                job()
            finally:
                communicator.call_order.over()
        if not asynchronous:
            work.wait()
        return self._batched(work)

    def _recorder(self, native, call, words, number):
        communicator = self.communicator
        return tracing.recorder(
            op=call.op.removesuffix("_single"),
            words=words,
            algorithm=native.name(),
            group=communicator.name,
            sequence=number,
            rank=communicator.rank,
            size=communicator.size,
            nbytes=call.nbytes,
        )

    def _wait_for(self, native, theirs, number, same, call, words, limit):
        communicator = self.communicator
        began = time.monotonic()
        try:
            if communicator.late_mismatch.pending:
                communicator.late_mismatch.look_back(communicator)
            with overseen(communicator, number, same, words):
                while not _over(theirs, call.on_gpu):
                    if communicator.broken is not None:
                        raise abort.Released(communicator.broken.message)
                    if time.monotonic() - began > limit:
                        late = TimedOut(f"{words}: nothing came within the timeout of {limit:g} s")
                        raise abort.fail(communicator, late, number, words)
                self._compare(number, same, words)
        except abort.Released:
            self._natives.abandon(native)
            raise
        except RuntimeError as error:
            self._natives.abandon(native)
            if communicator.broken is not None:
                raise
            lost = PeerLost(f"{native.name()} says: {error}")
            raise abort.fail(communicator, lost, number, words) from error

    def _compare(self, number, same, words):
        """The data has moved; but was it the same call everywhere? The board of this host knows."""
        communicator = self.communicator
        communicator.late_mismatch.note(number, same, words)
        communicator.late_mismatch.look_back(communicator)

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
        work = HandedMail(self.communicator, title, tensors, theirs, peer, opened(title, tensors))
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
