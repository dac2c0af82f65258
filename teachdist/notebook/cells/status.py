"""Who is where: asked of the ranks' control threads, so that it answers while ranks are blocked."""

import concurrent.futures
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


def ask(client, members):
    """The status of ``members`` (uuids by rank)."""
    present = engines_of(client)
    there = [rank for rank, uuid in enumerate(members) if uuid in present]
    asked = {
        rank: client._send(
            client._control_stream,
            "teachdist_where_request",
            content={"verdict": rank == there[0]},
            ident=members[rank].encode(),
        )
        for rank in there
    }
    concurrent.futures.wait(asked.values(), timeout=_DEADLINE)
    found = Status(_status(rank, asked.get(rank)) for rank in range(len(members)))
    if there and asked[there[0]].done():
        found.verdict = asked[there[0]].result()["content"]["verdict"]
    return found


def _status(rank, future):
    if future is None:
        return RankStatus(rank, "dead", "its process ended (killed, or out of memory)")
    if not future.done():
        return RankStatus(rank, "silent", "busy in compiled code, or stopped: does not answer")
    content = future.result()["content"]
    state = "idle" if content["seconds"] is None else "busy"
    return RankStatus(rank, state, content["text"], content["seconds"], content["pid"])
