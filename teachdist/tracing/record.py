"""What a real call did: its rounds with peers, chunks, bytes and times.

    with teachdist.trace() as t:
        dist.all_reduce(x)
    t.calls[0].rounds      # the same rounds that the algorithm's generator yields

A trace is recorded on the rank that asks for it; nothing is recorded otherwise, and a call that
is not traced pays one look at an empty list. Ask with `values=True` to keep what each chunk held
after each round.

Large data runs in segments, pieces of all chunks that go through the rounds one behind the other.
The trace puts them together again: a round has the bytes of all its segments, and a span of time
for each.

Times are seconds on the clock of time.monotonic(), which the ranks of one host share.
"""

import contextlib
import socket
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from teachdist.collectives import cost
from teachdist.rules import Log, judge
from teachdist.tracing.files import save
from teachdist.tracing.lines import Lines

_tracers = []
_lock = threading.Lock()


@dataclass
class TracedRound:
    """One round of one call on one rank. `sends` and `takes`: {peer: (chunks, bytes)}.

    `began` and `ended` bound it; `spans` are the (began, ended) of its segments. `values`:
    {chunk: tensor} after the round, if asked for.
    """

    number: int
    sends: dict
    takes: dict
    reduced: tuple
    began: float
    ended: float
    values: dict | None = None
    spans: list = field(default_factory=list)

    def __post_init__(self):
        self.spans = self.spans or [(self.began, self.ended)]

    @property
    def seconds(self):
        """How long this rank was in the round."""
        return sum(ended - began for began, ended in self.spans)

    def __str__(self):
        parts = [
            f"sends {_chunks(chunks)} to rank {peer}" for peer, (chunks, _) in self.sends.items()
        ]
        for peer, (chunks, _) in self.takes.items():
            verb = "adds" if set(chunks) <= set(self.reduced) else "receives"
            parts.append(f"{verb} {_chunks(chunks)} from rank {peer}")
        return f"round {self.number}: {', '.join(parts) or 'nothing'}"

    def holdings(self):
        """What the chunks held after the round, as text; or that it was not recorded."""
        if self.values is None:
            return "not recorded; ask with teachdist.trace(values=True)"
        held = sorted(self.values.items())
        return "  ".join(f"{chunk}: {_numbers(tensor)}" for chunk, tensor in held)

    def _more(self, sends, takes, reduced, began, ended):
        """Another segment of the same round."""
        for mine, more in ((self.sends, sends), (self.takes, takes)):
            for peer, (chunks, nbytes) in more.items():
                mine[peer] = (chunks, mine.get(peer, ((), 0))[1] + nbytes)
        self.reduced = tuple(sorted({*self.reduced, *reduced}))
        self.spans.append((began, ended))
        self.ended = ended


@dataclass
class TracedCall:
    """One collective as this rank ran it. `rank` and `size` are those of the group.

    `nbytes` is the n of the cost formulas (`collectives/model/cost.py`); `topology` holds the
    prices that the group's ranks agreed on, `hosts` the host of each rank.
    """

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
    root: int = 0
    hosts: tuple | None = None
    topology: object = None

    @property
    def seconds(self):
        """How long the call took on this rank."""
        return self.ended - self.began

    def predicted(self, topology=None):
        """What `teachdist.cost` says of this call: a Cost.

        `topology`: a Topology or the name of a preset, instead of the group's own.
        """
        topology = self.topology if topology is None else topology
        return cost(
            self.algorithm,
            self.op,
            self.nbytes,
            self.size,
            topology,
            root=self.root,
            hosts=self.hosts,
        )

    def __str__(self):
        lines = [f"{self.words}: {self.algorithm}, {len(self.rounds)} rounds"]
        for r in self.rounds:
            lines.append(f"  {r}")
            if held := r.holdings():
                lines.append(f"      {held}")
        return "\n".join(lines)


@dataclass(eq=False)  # two open traces with the same calls are still two
class Trace:
    """The calls that were recorded, in the order in which they ended."""

    values: bool = False
    calls: list = field(default_factory=list)
    log: Log = field(default_factory=Log)  # sends, receives and waits too, in order
    lines: list = field(default_factory=list)  # (when, line of the program), if asked for
    host: str = field(default_factory=socket.gethostname)

    def check(self, rules="nccl"):
        """Whether this rank's calls would be refused by other rules; a `teachdist.rules.Verdict`.

        Who waits for whom only the traces of all ranks can tell: `tracing.gather(t).check()`.
        rules: nccl, nccl-eager, gloo or mpi.
        """
        begun = [step.operation.rank for step in self.log.steps]
        return judge({begun[0]: self.log} if begun else {}, rules)

    def save(self, path):
        """Write what this rank called to a file, for `teachdist explain`; the path.

        A folder gets rank0.json, rank1.json and so on.
        """
        begun = [step.operation.rank for step in self.log.steps]
        rank = begun[0] if begun else 0
        path = Path(path)
        return save(
            rank, self.log, path / f"rank{rank}.json" if path.is_dir() else path, self.lines
        )

    def __str__(self):
        return "\n".join(map(str, self.calls))


@contextlib.contextmanager
def trace(values=False, lines=False):
    """Record the collectives of this process while the block runs.

    values: keep a copy of every chunk after every round too. lines: note a hundred times a second
    where the main thread is (real ranks only), so that `blame` can say where a late rank computed.
    """
    record = Trace(values, log=Log(began=time.monotonic()))
    looking = Lines() if lines else None
    with _lock:
        _tracers.append(record)
    try:
        yield record
    finally:
        with _lock:
            _tracers.remove(record)
        if looking is not None:
            looking.stop()
            record.lines = looking.seen


class Recorder:
    """Notes one call for all traces that are open when it begins; an observer of the executor."""

    def __init__(self, traces, call):
        self._traces = traces
        self.call = call
        self._rounds = {}
        self._values = {} if any(t.values for t in traces) else None
        self._last = call.began

    def __call__(self, number, rnd, state):
        """After a turn, which is a round of one segment.

        `rnd` is the plan's round, `state` {chunk: tensor} of the segment after it.
        """
        now = time.monotonic()
        sizes = {chunk: t.numel() * t.element_size() for chunk, t in state.items()}
        seen = (
            _sized(rnd.sends, sizes),
            _sized(rnd.takes, sizes),
            tuple(sorted(rnd.reduces)),
            self._last,
            now,
        )
        known = self._rounds.get(number)
        if known is None:
            self._rounds[number] = TracedRound(number, *seen)
        else:
            known._more(*seen)
        if self._values is not None:
            held = self._values.setdefault(number, {})
            for chunk, tensor in state.items():
                held.setdefault(chunk, []).append(tensor.clone())
        self._last = time.monotonic()

    def done(self, topology=None):
        """The call is over: hand it to the traces. topology() tells what messages cost."""
        call = self.call
        call.ended = time.monotonic()
        call.rounds = [self._rounds[number] for number in sorted(self._rounds)]
        if self._values is not None:
            _keep_values(call.rounds, self._values)
        if topology is not None:
            call.topology = topology()
        for record in self._traces:
            record.calls.append(call)


def logs():
    """The logs of the traces that are open now."""
    return [trace.log for trace in _tracers] if _tracers else ()


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


def _keep_values(rounds, values):
    """Give each round what its chunks held, the pieces of all segments put together."""
    import torch

    for one in rounds:
        pieces = values[one.number]
        one.values = {chunk: torch.cat(parts) for chunk, parts in pieces.items()}


def _numbers(tensor):
    shown = ", ".join(f"{number:g}" for number in tensor[:6].tolist())
    return f"[{shown}{', ...' if tensor.numel() > 6 else ''}]"


def _chunks(chunks):
    return ("chunk " if len(chunks) == 1 else "chunks ") + ", ".join(map(str, chunks))
