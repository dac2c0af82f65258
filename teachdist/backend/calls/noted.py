"""Noting what a rank calls and for what it waits, for those who ask: see `teachdist.rules`.

Nobody asks, most of the time; then a call pays one look at an empty list.
"""

import threading

from teachdist.backend.torch_patches import batch_under_way
from teachdist.diagnose.call_site import call_site
from teachdist.rules.log import Operation


class Noted:
    """Operations under one Work, in the logs that note them; it hears who waits for them."""

    __slots__ = ("_logs", "_operations", "_waited")

    def __init__(self, operations, logs):
        self._operations, self._logs = operations, logs
        self._waited = False
        for log in logs:
            for operation in operations:
                log.begin(operation, thread())

    def awaited(self):
        """Somebody waits for them."""
        if not self._waited:
            self._waited = True
            self._tell("wait")

    def poll(self, over):
        """Somebody has asked whether they are over, and was told `over`."""
        if over:
            self.awaited()
        else:
            self._tell("poll")

    def source(self, rank):
        """A receive from anybody came from that rank of the group."""
        for operation in self._operations:
            if operation.kind == "recv" and operation.peer is None:
                operation.source = operation.group[1][rank]

    def _tell(self, what):
        for log in self._logs:
            for operation in self._operations:
                log.wait(operation, thread(), what)


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
            how=call.reducer.name if call.reducer is not None else "",
            objects=objects,
            uneven=_uneven(call),
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
        kind, kind, words, call_site(3), rank, group, other, tag, nbytes, batch, "", objects
    )
    return Noted([operation], logs)


def _where(communicator):
    ranks = tuple(communicator.global_ranks)
    return ranks[communicator.rank], (communicator.name, ranks)


def _uneven(call):
    if call.op not in ("all_gather", "reduce_scatter") or len(call.agree) < 2:
        return False
    return isinstance(call.agree[1], tuple) and len(set(call.agree[1])) > 1
