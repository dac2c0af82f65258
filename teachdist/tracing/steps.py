"""Which step of a training loop is this? Found from what a rank calls again and again.

Nobody marks steps. But a loop calls the same things at the same lines, so the list of a rank's
calls repeats itself after some number of calls, the period; a step is one period. The start of a
program (broadcasting parameters, a first step that builds buckets) and its end do not repeat.
"""

from itertools import pairwise
from statistics import median


class Steps:
    """The steps of one rank. items: of `Program`, in order.

    durations: {number of a step, from 1: seconds from the end of the one before to its own end},
    so that it holds what its first call came late for; the first has none. seconds: their median,
    None if nothing repeats itself.
    """

    def __init__(self, items):
        begun = [item for item in items if item.what == "begin"]
        self._index = {item.operation: number for number, item in enumerate(begun)}
        calls = [_call(item.operation) for item in begun]
        self.period = _period(calls)
        self.first, last = _repeating(calls, self.period) if self.period else (0, 0)
        self.count = (last - self.first) // self.period if self.period else 0
        self._ends = {}
        for item in items:
            if step := self.of(item.operation):
                self._ends[step] = max(item.until, self._ends.get(step, item.until))
        ends = [self._ends[step] for step in sorted(self._ends)]
        self.durations = {k: b - a for k, (a, b) in enumerate(pairwise(ends), 2)}
        self.seconds = median(self.durations.values()) if self.durations else None

    def around(self, number, zero):
        """(begin, end) of a step with its neighbours, in seconds since `zero`."""
        first, last = max(number - 2, 1), min(number + 1, self.count)
        return self._ends[first] - zero, self._ends[last] - zero

    def of(self, operation):
        """The number of the step, from 1, in which an operation began; None outside of all."""
        number = self._index.get(operation)
        if not self.period or number is None or number < self.first:
            return None
        step = (number - self.first) // self.period
        return step + 1 if step < self.count else None


def _call(operation):
    return operation.site, operation.name, operation.words, operation.group


def _period(calls):
    """The smallest distance at which at least four of five calls come again; None without one."""
    for period in range(1, len(calls) // 2 + 1):
        pairs = len(calls) - period
        same = sum(calls[k] == calls[k + period] for k in range(pairs))
        if same >= 0.8 * pairs and pairs >= period:
            return period
    return None


def _repeating(calls, period):
    """(first, end) of the longest stretch that repeats itself with this period."""
    best, begin = (0, 0), None
    for k in range(len(calls) - period + 1):
        if k < len(calls) - period and calls[k] == calls[k + period]:
            begin = k if begin is None else begin
        elif begin is not None:
            if k + period - begin > best[1] - best[0]:
                best = begin, k + period
            begin = None
    return best
