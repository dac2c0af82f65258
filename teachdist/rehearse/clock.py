"""A rank's clock: how late it is there, and what its time was spent on.

Computing moves it on by the CPU time of the rank's thread; CPU time and not wall time, since other
ranks run in between. What the rehearsal itself does for a rank (`inside`) is not charged.
Communicating moves it to a time that the prices say (`prices.py`). Sleeping moves it by what was
asked for, and nobody sleeps.

    compute    this rank computed
    wait       it waited for a rank that came later; `blame` says for whom
    transfer   it waited for bytes under way: communication that computing did not hide
    sleep      it slept, or a time-out passed

Three ways to know how long computing takes:

    measured   the CPU time of this run. It differs from run to run.
    recorded   what an earlier run took for the same stretch of code, the median of all ranks that
               ran it. The same in each run.
    modelled   what the operations would take on a device, by their FLOPs and bytes (`model.py`).
"""

import contextlib
import json
import statistics
import time
from pathlib import Path

MONOTONIC = 1000.0  # what time.monotonic() says when a rehearsal begins: 0 is taken for "never"
KINDS = ("compute", "wait", "transfer", "sleep")


class Clock:
    """The clock of one rank; `time` in seconds since the rehearsal began. This one measures.

    factor: how much longer than here computing takes on the machine that is rehearsed. stretches:
    what was computed before each entry into the rehearsal, as (seconds, the call before).
    """

    def __init__(self, factor=1.0):
        self.time = 0.0
        self.spent = dict.fromkeys(KINDS, 0.0)
        self.blame = {}  # rank -> seconds waited for it
        self.events = []  # (kind, begin, end, words), for the timeline
        self.calls = []  # (words, when)
        self.inside = 0
        self.stretches = []
        self._stretch = 0.0
        self._shared = 0.0  # of what was computed, see `share`
        self._call = ""
        self._factor = factor
        self._from = None

    # -- computing -------------------------------------------------------------------------

    def start(self):
        """The rank's code runs from now on."""
        if not self.inside:
            self._from = time.thread_time()

    def stop(self):
        """The rank's code runs no more; charge for what it did."""
        if self._from is not None:
            seconds, self._from = (time.thread_time() - self._from) * self._factor, None
            self._stretch += seconds
            self.compute(seconds)

    def enter(self, counted=True):
        """The rank's thread now works for the rehearsal.

        counted: False where that may happen more often in one run than in another.
        """
        self.stop()
        if counted and not self.inside:
            self._end_of_stretch()
        self.inside += 1

    def _end_of_stretch(self):
        self.stretches.append((self._stretch, self._call))
        self._stretch = 0.0

    def leave(self):
        """It works for the rank again."""
        self.inside -= 1
        self.start()

    def finish(self):
        """The rank's program is over, or a cell of it."""
        self.stop()
        self._end_of_stretch()
        self.inside = 0

    def pause(self):
        """What follows, until `leave`, is no work of the rank: an import, a garbage collection."""
        self.stop()
        self.inside += 1

    def bookkeeping(self):
        """A context: what runs inside is torch's own work, which a model of a device leaves out."""
        return contextlib.nullcontext()

    def now(self):
        """The time, with what has been computed until this moment."""
        if self._from is not None:
            self.stop()
            self.start()
        return self.time

    def at(self, entry):
        """The rank has come to this call (`links.page.Entry`)."""
        self._call = entry.call
        self.calls.append((entry.call, self.time))

    def compute(self, seconds):
        """Computing has taken so long."""
        if seconds > 0.0:
            self._add("compute", self.time + seconds, "")

    def share(self, since, seconds):
        """Of `seconds` of communication, those that computing seemed to hide.

        since: what had been computed when it began. What one communication has taken another
        cannot take again.
        """
        before = max(since, self._shared)
        hidden = min(seconds, max(0.0, self.spent["compute"] - before))
        self._shared = before + hidden
        return hidden

    # -- everything else -------------------------------------------------------------------

    def advance(self, until, kind, words="", culprit=None):
        """Move on to `until`, if it is later; the rank waited for `culprit`, if known."""
        if until <= self.time:
            return
        if culprit is not None:
            self.blame[culprit] = self.blame.get(culprit, 0.0) + until - self.time
        self._add(kind, until, words)

    def _add(self, kind, until, words):
        began, self.time = self.time, until
        self.spent[kind] += until - began
        events = self.events
        if events and kind == "compute" == events[-1][0] and events[-1][2] == began:
            events[-1] = (kind, events[-1][1], until, words)
        else:
            events.append((kind, began, until, words))


class Recording:
    """How long each stretch of computing took, from a measured run; give it as `clock=`.

    A stretch is what a rank computes between two entries into the rehearsal. It is known by its
    number and the call before it; of the ranks that ran the same the median counts.
    """

    def __init__(self, ranks=()):
        found = {}
        for rank in ranks:
            for number, (seconds, call) in enumerate(rank.clock.stretches):
                found.setdefault((number, call), []).append(seconds)
        self.seconds = {key: statistics.median_low(times) for key, times in found.items()}

    def save(self, path):
        """Keep it as JSON."""
        rows = [[*key, seconds] for key, seconds in self.seconds.items()]
        Path(path).write_text(json.dumps(rows))

    @classmethod
    def load(cls, path):
        """What `save` has kept."""
        recording = cls()
        recording.seconds = {(n, call): s for n, call, s in json.loads(Path(path).read_text())}
        return recording


class Recorded(Clock):
    """A clock that takes the time of each stretch from a recording."""

    def __init__(self, recording):
        super().__init__()
        self._recording = recording
        self._number = 0

    def start(self):
        """Nothing is measured."""

    def stop(self):
        """Nothing is measured."""

    def _end_of_stretch(self):
        self.compute(self._recording.seconds.get((self._number, self._call), 0.0))
        self._number += 1


class Modelled(Clock):
    """A clock that is told by a model how long each operation takes (`model.py`)."""

    def __init__(self):
        super().__init__()
        self.pending = 0.0

    def start(self):
        """Nothing is measured."""

    def stop(self):
        """Charge for the operations since the last time."""
        seconds, self.pending = self.pending, 0.0
        self.compute(seconds)

    @contextlib.contextmanager
    def bookkeeping(self):
        """A context: operations inside take no time."""
        self.inside += 1
        try:
            yield
        finally:
            self.inside -= 1

    def pause(self):
        """The rank stops computing; when this happens must not show, so nothing is charged yet."""
        self.inside += 1

    def now(self):
        """The time, with the operations until this moment."""
        self.stop()
        return self.time
