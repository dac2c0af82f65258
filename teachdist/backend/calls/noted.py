"""Noting what a rank calls and for what it waits, for those who ask: see `teachdist.rules`.

Nobody asks, most of the time; then a call pays one look at an empty list.
"""

import threading
import time

from teachdist.backend.torch_patches import batch_under_way
from teachdist.diagnose.call_site import call_site
from teachdist.rules.log import Operation

_ROOTED = {"broadcast", "reduce", "gather", "scatter"}


class Noted:
    """Operations under one Work, in the logs that note them; it hears who waits for them."""

    __slots__ = ("_logs", "_operations", "_steps")

    def __init__(self, operations, logs):
        self._operations, self._logs = operations, logs
        self._steps = None  # the waits, once somebody waits
        for log in logs:
            for operation in operations:
                log.begin(operation, thread())

    def awaited(self):
        """Somebody waits for them."""
        if self._steps is None:
            self._steps = self._tell("wait")

    def resumed(self):
        """Whoever waits for them goes on."""
        now = time.monotonic()
        for step in self._steps or ():
            if step.until is None:
                step.until = now

    def ended(self, when=None):
        """They are over, now or at a time."""
        when = time.monotonic() if when is None else when
        for operation in self._operations:
            if operation.ended is None:
                operation.ended = when

    def poll(self, over):
        """Somebody has asked whether they are over, and was told `over`."""
        if over:
            self.awaited()
            self.resumed()
        else:
            self._tell("poll")

    def source(self, rank):
        """A receive from anybody came from that rank of the group."""
        for operation in self._operations:
            if operation.kind == "recv" and operation.peer is None:
                operation.source = operation.group[1][rank]

    def _tell(self, what):
        me = thread()
        return [
            log.wait(operation, me, what) for log in self._logs for operation in self._operations
        ]


def thread():
    """A number for the present thread: 0 for a process's first."""
    me = threading.current_thread()
    return 0 if me is threading.main_thread() or me.name.startswith("rank ") else me.ident


def collectives(communicator, calls, logs):
    """Note collectives that begin now; a `Noted`."""
    site, (_, objects) = call_site(3), batch_under_way()
    where = _where(communicator)
    operations = [
        Operation(
            "collective",
            call.op,
            call.words,
            site,
            *where,
            nbytes=call.nbytes,
            how=_how(call),
            objects=objects,
            uneven=_uneven(call),
            root=where[1][1][call.root] if call.op in _ROOTED else None,
            title=communicator.title,
        )
        for call in calls
    ]
    return Noted(operations, logs)


def message(communicator, kind, words, tensor, peer, tag, logs):
    """Note a send or a receive that begins now; peer: a rank of the group, None for anybody."""
    batch, objects = batch_under_way()
    rank, group = _where(communicator)
    other = group[1][peer] if peer is not None else None
    nbytes = tensor.numel() * tensor.element_size()
    operation = Operation(
        kind, kind, words, call_site(3), rank, group, other, tag, nbytes, batch, "", objects,
        title=communicator.title,
    )  # fmt: skip
    return Noted([operation], logs)


def _where(communicator):
    ranks = tuple(communicator.global_ranks)
    return ranks[communicator.rank], (communicator.name, ranks)


def _how(call):
    how = getattr(call, "reducer", None)
    return how.name if how is not None else ""


def _uneven(call):
    if call.op not in ("all_gather", "reduce_scatter") or len(call.agree) < 2:
        return False
    return isinstance(call.agree[1], tuple) and len(set(call.agree[1])) > 1
