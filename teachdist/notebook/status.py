"""Who is where: asked of the ranks' control threads, so that it answers while ranks are blocked."""

import concurrent.futures
from dataclasses import dataclass

from teachdist.notebook.outputs import group, label, name_ranks

_DEADLINE = 1.0  # a rank answers in 60 ms, unless C++ code holds the interpreter


@dataclass(frozen=True)
class RankStatus:
    """What one rank is doing.

    Attributes:
        rank: its number.
        state: "idle", "busy", "silent" (does not answer) or "dead" (its process ended).
        text: where it is.
        seconds: how long the cell has been running there, if busy.
        pid: of its process, if it answered.
        call: number of the collective that it is in, if it is in one of backend teachdist.
    """

    rank: int
    state: str
    text: str
    seconds: float | None = None
    pid: int | None = None
    call: int | None = None

    def __str__(self):
        return self.text if self.seconds is None else f"{self.text}  (for {self.seconds:.0f} s)"


class Status(list):
    """A ``RankStatus`` per rank; its text puts equal ones together and says who is missing."""

    @property
    def missing(self):
        """Ranks for which the others wait: those that are not yet in the others' collective."""
        latest = max((one.call for one in self if one.call is not None), default=None)
        if latest is None:
            return []
        return [one.rank for one in self if one.call is None or one.call < latest]

    def __str__(self):
        by_rank = {one.rank: str(one) for one in self}
        lines = [label(ranks, text) for ranks, text in group(by_rank)]
        if self.missing:
            waiting = [one.rank for one in self if one.rank not in self.missing]
            verb = "waits" if len(waiting) == 1 else "wait"
            lines.append(f"{name_ranks(waiting)} {verb} for {name_ranks(self.missing)}")
        return "\n".join(lines)

    __repr__ = __str__


def ask(client, members):
    """The status of ``members`` (uuid by rank)."""
    present = {key: uuid for key, uuid in client._engines.items() if isinstance(key, int)}
    asked = {
        rank: client._send(
            client._control_stream, "teachdist_where_request", content={}, ident=uuid.encode()
        )
        for rank, uuid in members.items()
        if present.get(rank) == uuid
    }
    concurrent.futures.wait(asked.values(), timeout=_DEADLINE)
    return Status(_status(rank, asked.get(rank)) for rank in sorted(members))


def _status(rank, future):
    if future is None:
        return RankStatus(rank, "dead", "its process ended (killed, or out of memory)")
    if not future.done():
        return RankStatus(rank, "silent", "busy in compiled code, or stopped: does not answer")
    content = future.result()["content"]
    state = "idle" if content["seconds"] is None else "busy"
    return RankStatus(
        rank, state, content["text"], content["seconds"], content["pid"], content["call"]
    )
