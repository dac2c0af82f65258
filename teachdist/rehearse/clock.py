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
    recorded   what an earlier run took for the same stretch of code, the least of all ranks that
               ran it: other programs on the machine can only make it longer. The same in each run.
    modelled   what the operations would take on a device, by their FLOPs and bytes (`model.py`).
"""

import time

KINDS = ("compute", "wait", "transfer", "sleep")


class Clock:
    """The clock of one rank; `time` in seconds since the rehearsal began.

    factor: how much longer than here computing takes on the machine that is rehearsed.
    """

    def __init__(self, factor=1.0):
        self.time = 0.0
        self.spent = dict.fromkeys(KINDS, 0.0)
        self.blame = {}  # rank -> seconds waited for it
        self.events = []  # (kind, begin, end, words), for the timeline
        self.inside = 0
        self._factor = factor
        self._from = None

    # -- computing -------------------------------------------------------------------------------

    def start(self):
        """The rank's code runs from now on."""
        if not self.inside:
            self._from = time.thread_time()

    def stop(self):
        """The rank's code runs no more; charge for what it did."""
        if self._from is not None:
            seconds, self._from = time.thread_time() - self._from, None
            self.compute(seconds * self._factor)

    def enter(self):
        """The rank's thread now works for the rehearsal."""
        self.stop()
        self.inside += 1

    def leave(self):
        """It works for the rank again."""
        self.inside -= 1
        self.start()

    def now(self):
        """The time, with what has been computed until this moment."""
        if self._from is not None:
            self.stop()
            self.start()
        return self.time

    def at(self, entry):
        """The rank has come to this call (`links.page.Entry`)."""

    def compute(self, seconds):
        """Computing has taken so long."""
        if seconds > 0.0:
            self._add("compute", self.time + seconds, "")

    # -- everything else -----------------------------------------------------------------------

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
