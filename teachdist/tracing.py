"""What a real call did: its rounds with peers, chunks, bytes and times.

    with teachdist.trace() as t:
        dist.all_reduce(x)
    t.calls[0].rounds      # the same rounds that the algorithm's generator yields

A trace is recorded on the rank that asks for it; nothing is recorded otherwise, and a call that
is not traced pays one look at an empty list. Ask with `values=True` to keep what each chunk held
after each round.

Times are seconds on the clock of time.monotonic(), which the ranks of one host share.
"""

import contextlib
import threading
import time
from dataclasses import dataclass, field

_tracers = []
_lock = threading.Lock()


@dataclass
class TracedRound:
    """One round of one call on one rank. `sends` and `takes`: {peer: (chunks, bytes)}."""

    number: int
    sends: dict
    takes: dict
    reduced: tuple
    began: float
    ended: float
    values: dict | None = None

    def __str__(self):
        parts = [
            f"sends {_chunks(chunks)} to rank {peer}" for peer, (chunks, _) in self.sends.items()
        ]
        for peer, (chunks, _) in self.takes.items():
            verb = "adds" if set(chunks) <= set(self.reduced) else "receives"
            parts.append(f"{verb} {_chunks(chunks)} from rank {peer}")
        return f"round {self.number}: {', '.join(parts) or 'nothing'}"


@dataclass
class TracedCall:
    """One collective as this rank ran it. `rank` and `size` are those of the group."""

    op: str
    words: str
    algorithm: str
    group: str
    sequence: int
    rank: int
    size: int
    nbytes: int
    began: float
    ended: float = 0.0
    rounds: list = field(default_factory=list)

    @property
    def seconds(self):
        """How long the call took on this rank."""
        return self.ended - self.began

    def __str__(self):
        lines = [f"{self.words}: {self.algorithm}, {len(self.rounds)} rounds"]
        return "\n".join(lines + [f"  {r}" for r in self.rounds])


@dataclass
class Trace:
    """The calls that were recorded, in the order in which they ended."""

    values: bool = False
    calls: list = field(default_factory=list)

    def __str__(self):
        return "\n".join(map(str, self.calls))


@contextlib.contextmanager
def trace(values=False):
    """Record the collectives of this process while the block runs.

    values: keep a copy of every chunk after every round too.
    """
    record = Trace(values)
    with _lock:
        _tracers.append(record)
    try:
        yield record
    finally:
        with _lock:
            _tracers.remove(record)


class Recorder:
    """Notes one call for all traces that are open when it begins; an observer of the executor."""

    def __init__(self, traces, call):
        self._traces = traces
        self.call = call
        self._values = any(t.values for t in traces)
        self._last = call.began

    def __call__(self, number, rnd, state):
        """After a round: `rnd` is the plan's round, `state` {chunk: tensor} after it."""
        now = time.monotonic()
        sizes = {chunk: t.numel() * t.element_size() for chunk, t in state.items()}
        values = {chunk: t.clone() for chunk, t in state.items()} if self._values else None
        self.call.rounds.append(
            TracedRound(
                number,
                _sized(rnd.sends, sizes),
                _sized(rnd.takes, sizes),
                tuple(sorted(rnd.reduces)),
                self._last,
                now,
                values,
            )
        )
        self._last = now

    def done(self):
        """The call is over: hand it to the traces."""
        self.call.ended = time.monotonic()
        for record in self._traces:
            record.calls.append(self.call)


def active():
    """Whether anybody traces now."""
    return bool(_tracers)


def recorder(**fields):
    """A `Recorder` if anybody traces now, else None. Fields: those of `TracedCall`."""
    if not _tracers:
        return None
    return Recorder(list(_tracers), TracedCall(began=time.monotonic(), **fields))


def _sized(by_peer, sizes):
    return {
        peer: (tuple(chunks), sum(sizes.get(c, 0) for c in chunks))
        for peer, chunks in by_peer.items()
    }


def _chunks(chunks):
    return ("chunk " if len(chunks) == 1 else "chunks ") + ", ".join(map(str, chunks))
