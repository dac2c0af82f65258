"""What is known of a call that a native backend runs: how it is named, and its handle."""

import threading
from dataclasses import dataclass, field
from datetime import timedelta

import torch

from teachdist.backend.calls.call import describe as words_for
from teachdist.backend.calls.call import name_of
from teachdist.backend.calls.reduce_ops import short
from teachdist.backend.group import abort
from teachdist.backend.group.communicator import seconds
from teachdist.backend.work import Work, asked
from teachdist.diagnose import Watchdog, call_site
from teachdist.links import Deadline, LinkError, PeerLost
from teachdist.links.waiting import TICK

# c10d's method -> (operation, title for the profiler, which argument is the input, and the output)
_KNOWN = {
    "broadcast": ("broadcast", "broadcast", 0, 0),
    "allreduce": ("all_reduce", "all_reduce", 0, 0),
    "allreduce_coalesced": ("all_reduce", "all_reduce", 0, 0),
    "reduce": ("reduce", "reduce", 0, 0),
    "allgather": ("all_gather", "all_gather", 1, 0),
    "allgather_coalesced": ("all_gather", "all_gather", 1, 0),
    "all_gather_single": ("all_gather_single", "_all_gather_base", 1, 0),
    "all_gather_single_coalesced": ("all_gather_single", "_all_gather_base", 1, 0),
    "gather": ("gather", "gather", 1, 0),
    "scatter": ("scatter", "scatter", 0, 0),
    "reduce_scatter": ("reduce_scatter", "reduce_scatter", 0, 0),
    "reduce_scatter_single": ("reduce_scatter_single", "_reduce_scatter_base", 0, 0),
    "reduce_scatter_single_coalesced": ("reduce_scatter_single", "_reduce_scatter_base", 0, 0),
    "alltoall": ("all_to_all", "all_to_all", 1, 0),
    "all_to_all_single": ("all_to_all_single", "all_to_all", 1, 0),
    "barrier": ("barrier", "barrier", None, None),
}
# Ranks may give tensors of different sizes to these.
_UNEVEN = {"all_gather", "reduce_scatter", "all_to_all", "all_to_all_single"}
AFTER = 5.0  # seconds after our own time-out, whose sentence says more, until the native one


@dataclass
class Handed:
    """A call that goes to a native backend. agree: what must be equal on all ranks."""

    words: str
    title: str
    agree: tuple
    inputs: list = field(default_factory=list)
    outputs: list = field(default_factory=list)
    on_gpu: bool = False
    root: int = 0

    @property
    def op(self):
        """The operation's name."""
        return self.agree[0]

    @property
    def nbytes(self):
        """The bytes of the larger side, as in the cost formulas."""
        return max(sum(t.nbytes for t in side) for side in (self.inputs, self.outputs))


def describe(name, args, opts):
    """What the board shall say of native.<name>(*args, opts)."""
    op, title, given, taken = _KNOWN[name]
    inputs = [] if given is None else tensors_in(args[given])
    outputs = [] if taken is None else tensors_in(args[taken])
    root = getattr(opts, "rootRank", 0)
    details = [name_of(opts.reduceOp)] if hasattr(opts, "reduceOp") else []
    details += [f"root={opts.rootRank}"] if hasattr(opts, "rootRank") else []
    if not inputs:
        said = f"{op}({', '.join(details)})"
        return Handed(said, title, (op, *details), outputs=outputs, root=root)
    words = words_for(op, inputs[0], *details)
    sizes = () if op in _UNEVEN else tuple(t.numel() for t in inputs)
    agree = (op, *details, short(inputs[0].dtype), sizes)
    return Handed(words, title, agree, inputs, outputs, inputs[0].device.type != "cpu", root)


def tensors_in(value):
    """All tensors of a tensor, a list of them, or a list of lists."""
    if isinstance(value, torch.Tensor):
        return [value]
    return [t for part in value for t in tensors_in(part)] if isinstance(value, list) else []


def first_tensor(args):
    """The first tensor among a method's arguments, or None."""
    for value in args:
        if isinstance(value, torch.Tensor):
            return value
        if isinstance(value, (list, tuple)) and (found := first_tensor(value)) is not None:
            return found
    return None


class HandedWork(Work):
    """The handle of a collective that a native backend runs.

    theirs: the native Work if the tensors are on a GPU. Waiting is then its business: it makes the
    current stream wait and returns at once.
    """

    def __init__(self, outputs, theirs, closing=None):
        super().__init__(outputs, closing)
        self._theirs = theirs

    def wait(self, timeout=None):
        """Block until done (a GPU's current stream, not the caller); True, or raises."""
        if self._theirs is None or self.error is not None:
            return super().wait(timeout)
        return self._theirs.wait(timeout) if timeout else self._theirs.wait()

    def get_future(self):
        """A torch.futures.Future of the list of output tensors."""
        if self._theirs is None:
            return super().get_future()
        asked.work = self
        return self._theirs.get_future()

    def is_completed(self):
        """Whether the collective is over (on a GPU: whether its result can be used)."""
        return super().is_completed() if self._theirs is None else self._theirs.is_completed()

    def synchronize(self):
        """Have the current stream wait."""
        self.wait()

    def block_current_stream(self):
        """Have the current stream wait."""
        if self._theirs is None:
            super().block_current_stream()
        else:
            self._theirs.block_current_stream()


class HandedMail(Work):
    """The handle of a send or a receive that a native backend runs."""

    def __init__(self, communicator, title, tensors, theirs, peer, closing=None):
        super().__init__(list(tensors), closing)
        whom = "any" if peer is None else communicator.who(peer)
        side = "dst" if title == "send" else "src"
        self._words = f"{words_for(title, tensors[0], f'{side}={whom}')} at {call_site()}"
        self._communicator, self._theirs, self._peer = communicator, theirs, peer
        self._started = False

    def wait(self, timeout=None):
        """Block until done; True, or raises what went wrong."""
        if self.outputs[0].device.type != "cpu":
            return self._theirs.wait(timeout) if timeout else self._theirs.wait()
        if not self._started:  # the native wait is deaf: it gets a thread of its own
            self._started = True
            threading.Thread(target=self._native_wait, args=(timeout,), daemon=True).start()
        communicator, words = self._communicator, self._words
        after, anybody = communicator.options.hint_after, self._peer is None
        watch = Watchdog(communicator.view, words, after, anybody=anybody)
        deadline = Deadline(seconds(timeout, communicator.timeout), watch, words)
        place = communicator.page.begin_message(communicator.generation, words)
        try:
            while not self.over_within(TICK):
                deadline.over(communicator.others if anybody else [self._peer])
        except LinkError as error:
            raise abort.explain(communicator, error, None, words) from error
        finally:
            communicator.page.end_message(place)
        return super().wait(timeout)

    def _native_wait(self, timeout):
        try:
            limit = seconds(timeout, self._communicator.timeout) + AFTER
            self._theirs.wait(timedelta(seconds=limit))
            self.source = self._peer if self._peer is not None else self._theirs._source_rank()
        except RuntimeError as error:
            lost = PeerLost(f"the native backend says: {error}", self._peer)
            self.finish(abort.explain(self._communicator, lost, None, self._words))
        else:
            self.finish()

    def is_completed(self):
        """Whether the operation is over."""
        return self.over or self._theirs.is_completed()
