"""What a rank called, in order: operations that were begun, and waits for them.

The log has no data. Whoever knows in which order every rank began what, and for what it waited
before it went on, can play the run again under other rules (`machine.py`); with the times, too,
who kept whom waiting (`teachdist.tracing.blame`). Steps of different threads of a rank are told
apart, as only those of one thread have an order.

Times are seconds on the clock of time.monotonic(); on rehearsed ranks they are virtual.
"""

import time
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Operation:
    """One call on one rank. All ranks are numbers in the job.

    kind: "collective", "send" or "recv". name: all_reduce, send. words, site: what messages say.
    group: (name, its ranks). peer: the other side, None for "anybody" and for collectives; source:
    who it was then, once known. nbytes: of the message, or the n of the cost formulas. batch: the
    operations of one batch_isend_irecv share a number. how: the reduce operation's name. objects:
    whether torch made it to move Python objects. uneven: whether ranks gave tensors of different
    sizes to it. root: of a broadcast, reduce, gather or scatter. title: how messages call the
    group. ended: when it was over, None if it never was.
    """

    kind: str
    name: str
    words: str
    site: str
    rank: int
    group: tuple
    peer: int | None = None
    tag: int = 0
    nbytes: int = 0
    batch: int | None = None
    how: str = ""
    objects: bool = False
    uneven: bool = False
    source: int | None = None
    root: int | None = None
    title: str = ""
    ended: float | None = None

    def __str__(self):
        return f"{self.words} at {self.site}"


@dataclass(slots=True, eq=False)
class Step:
    """What a rank does with an operation: "begin", "wait", or "poll" if it only asks for its end.

    A poll that was answered with yes is noted as a wait. when: it was done; until: a wait's end,
    None if it has none.
    """

    what: str
    operation: Operation
    thread: int = 0
    when: float = 0.0
    until: float | None = None


@dataclass(eq=False)
class Log:
    """The steps of one rank, in order. began: when it was opened, None if that says nothing."""

    steps: list = field(default_factory=list)
    began: float | None = None

    def begin(self, operation, thread=0):
        """The rank begins an operation."""
        self.steps.append(Step("begin", operation, thread, time.monotonic()))

    def wait(self, operation, thread=0, what="wait"):
        """The rank waits for it, or asks whether it is over; the `Step`."""
        step = Step(what, operation, thread, time.monotonic())
        self.steps.append(step)
        return step
