"""Who is where: asked of the ranks' control threads, so that it answers while ranks are blocked."""

import concurrent.futures
import time
from dataclasses import dataclass

from teachdist.notebook.cells.outputs import group, label
from teachdist.notebook.engines.processes import engines_of
from teachdist.pictures.whereabouts import table

_DEADLINE = 3.0  # seconds; a rank answers in 60 ms, unless C++ code holds the interpreter


@dataclass(frozen=True)
class RankStatus:
    """What one rank is doing.

    Attributes:
        rank: its number.
        state: "idle", "busy", "silent" (does not answer) or "dead" (its process ended).
        text: where it is.
        seconds: how long the cell has been running there, if busy.
        pid: of its process, if it answered.
    """

    rank: int
    state: str
    text: str
    seconds: float | None = None
    pid: int | None = None

    def __str__(self):
        return self.text if self.seconds is None else f"{self.text}  (for {self.seconds:.0f} s)"


class Status(list):
    """A ``RankStatus`` per rank; its text puts equal ones together, and a notebook draws a table.

    Attributes:
        verdict: who waits for whom, or has parted from the others; backend teachdist knows it.
    """

    verdict = ""

    def __str__(self):
        by_rank = {one.rank: str(one) for one in self}
        lines = [label(ranks, text) for ranks, text in group(by_rank)]
        return "\n".join([*lines, self.verdict] if self.verdict else lines)

    __repr__ = __str__

    @property
    def timed(self):
        """Whether it tells how long: then a stored notebook doesn't keep it."""
        return any(one.seconds is not None for one in self)

    def _repr_svg_(self):
        return table(self, self.verdict)


class Inquiry:
    """A question to the control threads of ``members`` (uuids by rank), under way."""

    def __init__(self, client, members):
        present = engines_of(client)
        self._size = len(members)
        there = [rank for rank, uuid in enumerate(members) if uuid in present]
        self._first = there[0] if there else None  # one of them tells the verdict
        self._asked = {
            rank: client._send(
                client._control_stream,
                "teachdist_where_request",
                content={"verdict": rank == self._first},
                ident=members[rank].encode(),
            )
            for rank in there
        }
        self._until = time.monotonic() + _DEADLINE

    @property
    def done(self):
        """Whether every rank has answered, or has been waited for long enough."""
        late = time.monotonic() > self._until
        return late or all(future.done() for future in self._asked.values())

    def answer(self):
        """The ``Status``; waits until it is ``done``."""
        left = max(0.0, self._until - time.monotonic())
        concurrent.futures.wait(self._asked.values(), timeout=left)
        found = Status(_status(rank, self._asked.get(rank)) for rank in range(self._size))
        if self._first is not None and self._asked[self._first].done():
            found.verdict = self._asked[self._first].result()["content"]["verdict"]
        return found


def _status(rank, future):
    if future is None:
        return RankStatus(rank, "dead", "its process ended (killed, or out of memory)")
    if not future.done():
        return RankStatus(rank, "silent", "busy in compiled code, or stopped: does not answer")
    content = future.result()["content"]
    state = "idle" if content["seconds"] is None else "busy"
    return RankStatus(rank, state, content["text"], content["seconds"], content["pid"])
