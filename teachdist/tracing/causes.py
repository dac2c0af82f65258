"""Why did a rank come late? A wait is followed back to the stretch of time that caused it.

    rank 2   ==============late==|send                   <- the cause: rank 2 computed longer
    rank 1   ==|recv waits ......|==|all_reduce          <- late, but kept waiting itself
    rank 0   ==|all_reduce waits ...|                    <- waits for rank 1, because of rank 2

While rank 0 waited, rank 1 waited for a message and computed, and before that message rank 2
computed. Each such stretch, of computing or of moving bytes, is compared with what other ranks
took at the same line; the one that took most longer is the cause. If none did (a relay is slow
because it is one), it is the longest.

Source: Böhme, Geimer, Wolf, Arnold: "Identifying the root causes of wait states in large-scale
parallel applications" (2010), which follows delays back in Scalasca.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from statistics import median


@dataclass(eq=False)
class Cause:
    """A stretch of time that kept others waiting: on the way to `operation`, `since` a line or "".

    kind: "computing", "starting" (computing before the first wait) or "transfer". seconds: how
    long; longer: how much longer than elsewhere;
    unusual: whether that is what makes it the cause.
    """

    kind: str
    operation: object
    since: str
    seconds: float
    longer: float
    unusual: bool = False


@dataclass(eq=False)
class Reason:
    """What others waited for at one line, summed over the run.

    rank: who was late. kind: "computing", "starting" or "transfer". site, name, group: the call to
    which it came late. waited: seconds that all ranks together waited for it; unusual: those of
    them that are due to stretches longer than on other ranks. late: {operation: (the step or None,
    how late in seconds, which of its group the call was, the line of the wait before)}.
    """

    rank: int
    kind: str
    site: str
    name: str
    group: str
    waited: float = 0.0
    unusual: float = 0.0
    late: dict = field(default_factory=dict)

    @property
    def counted(self):
        """The entries of `late` that count: at least half as late as the worst but for a tenth."""
        worst = sorted((entry[1] for entry in self.late.values()), reverse=True)
        usual = worst[len(worst) // 10]
        return [entry for entry in self.late.values() if entry[1] >= 0.5 * usual]

    @property
    def seconds(self):
        """How late it came, the median of the times that count."""
        return median(entry[1] for entry in self.counted)

    @property
    def steps(self):
        """The steps in which that was."""
        return sorted({entry[0] for entry in self.counted} - {None})

    @property
    def number(self):
        """Which call of its group it was, the first time that counts."""
        return min(entry[2] for entry in self.counted)

    @property
    def since(self):
        """The line at which it had last waited, "" if nowhere."""
        return self.counted[-1][3]


class Causes:
    """Finds the cause of each wait of a `Program`."""

    def __init__(self, program):
        self.program = program
        self.place = {}  # operation -> its place among its rank's items
        self._calls = {rank: defaultdict(list) for rank in program.items}
        self._number, self._transfer = {}, {}
        for rank, items in program.items.items():
            for place, item in enumerate(items):
                if item.what == "begin":
                    op = item.operation
                    self.place[op] = place
                    calls = self._calls[rank][op.site, op.name, op.kind]
                    self._number[op] = len(calls)
                    calls.append(op)
            for item, _, transfer, _ in program.waits(rank):
                self._transfer[item.operation] = transfer

    def of(self, operation, since):
        """The `Cause` of an operation's coming late, for a rank that waited for it `since`."""
        causes, seen, arrived = [], set(), self.program.arrived
        while operation is not None and operation not in seen:
            seen.add(operation)
            own, before = self._computed(operation)
            line = before.operation.site if before is not None else ""
            longer = own - self._elsewhere(operation)
            kind = "starting" if before is None else "computing"
            causes.append(Cause(kind, operation, line, own, longer))
            if before is None or arrived[operation] - own <= since:
                break
            operation, came = self._held_by(before)
            moved = before.until - came
            longer = moved - self._moved_elsewhere(before.operation)
            causes.append(Cause("transfer", before.operation, line, moved, longer))
        window = arrived[causes[0].operation] - since
        longest = max(causes, key=lambda cause: cause.longer)
        if longest.longer >= 0.2 * window:
            longest.seconds, longest.unusual = longest.longer, True
            return longest
        return max(causes, key=lambda cause: cause.seconds)

    def _held_by(self, wait):
        """(the side that ended a wait: another rank's, or its own; when the transfer began)."""
        who, when = self.program.culprit(wait.operation.rank, wait.operation)
        if who is None or when <= wait.at:
            return (wait.operation if wait.operation in self.place else None), wait.at
        side = self.program.meetings[wait.operation].operations[who]
        return (side if side in self.place else None), when

    def _computed(self, operation):
        """(seconds that its rank computed since its last wait, that wait or None)."""
        items, place, seconds = self.program.items[operation.rank], self.place[operation], 0.0
        while True:
            seconds += items[place].before
            place -= 1
            if place < 0:
                return seconds, None
            if items[place].what == "wait":
                return seconds, items[place]

    def _elsewhere(self, operation):
        """How long other ranks computed before the same call: at the same line, the same time.

        Where no other rank has such a call: before their sides of this operation.
        """
        rank, number = operation.rank, self._number[operation]
        place = operation.site, operation.name, operation.kind
        others = [
            self._computed(calls[number])[0]
            for other, places in self._calls.items()
            if other != rank and number < len(calls := places.get(place, ()))
        ]
        if not others:
            others = [
                self._computed(other)[0]
                for other in self.program.meetings[operation].operations.values()
                if other is not operation and other in self.place
            ]
        return median(others) if others else 0.0

    def _moved_elsewhere(self, operation):
        """The median transfer of the other sides of an operation."""
        others = [
            self._transfer[side]
            for side in self.program.meetings[operation].operations.values()
            if side is not operation and side in self._transfer
        ]
        return median(others) if others else 0.0
