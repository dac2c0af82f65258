"""A traced run as a program: what each rank computed, began and waited for, and who came when.

    rank 0   ==computing==| waits for rank 1 ....|transfer|==computing==|
    rank 1   ==computing======================== |transfer|==computing==|
             ^ began                             ^ rank 1 arrives        ^ the next call

A log (`teachdist.rules.Log`) says when a rank began an operation, when it began to wait for it, and
when it went on. What lies between is computing. An operation that nobody waits for in Python was
given a future, and C++ waits (DistributedDataParallel at the end of backward): then the wait lasts
from the rank's last call before the operation's end to that end.

Whom a wait was for: of those whose arrival the operation needs, the last that came before it was
over. A broadcast needs its root, the root of a reduce everybody, a receive its send.

Several threads of a rank are taken for one: what they do at the same time counts as one after the
other.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass


@dataclass(eq=False)
class Item:
    """Something that a rank did: "begin" an operation, or "wait" for it, from `at` to `until`.

    before: seconds of computing since the item before it.
    """

    what: str
    operation: object
    at: float
    until: float
    before: float = 0.0

    @property
    def place(self):
        """The line of the program, and the operation."""
        return self.operation.site, self.operation.name


@dataclass(eq=False)
class Meeting:
    """The operations of all ranks that belong together: a collective, or a send and its receive.

    number: which one of its group it is, from 1; of messages, of its pair.
    """

    number: int
    operations: dict  # rank -> its operation

    def arrivals(self, arrived):
        """{rank: when it began its side}."""
        return {rank: arrived[op] for rank, op in self.operations.items() if op in arrived}

    def needed(self, rank):
        """The ranks whose arrival this rank's side needs, itself left out."""
        mine = self.operations[rank]
        if mine.kind == "send":
            return ()
        if mine.name in ("broadcast", "scatter") and mine.root is not None:
            return () if rank == mine.root else (mine.root,)
        if mine.name in ("reduce", "gather") and mine.root not in (None, rank):
            return ()
        return tuple(other for other in self.operations if other != rank)


class Program:
    """All ranks of a traced run. logs: {rank: Log}; shifts: seconds to add to a rank's times.

    items: {rank: its items in order}. meetings: {operation: its `Meeting`}.
    """

    def __init__(self, logs, shifts=None):
        shifts = shifts or {}
        self.arrived, self.ended = {}, {}
        self.items, self._places = {}, {}
        for rank in sorted(logs):
            shift = shifts.get(rank, 0.0)
            items = _items(logs[rank], shift)
            if items:
                self.items[rank] = items
            for item in items:
                if item.what == "begin":
                    self.arrived[item.operation] = item.at
                    if item.operation.ended is not None:
                        self.ended[item.operation] = item.operation.ended + shift
        self.meetings = _meetings(self.items)
        starts = [items[0].at - items[0].before for items in self.items.values()]
        self.began = min(starts, default=0.0)
        self.until = max((items[-1].until for items in self.items.values()), default=0.0)

    @property
    def seconds(self):
        """From the opening of the trace to the last end."""
        return self.until - self.began

    def culprit(self, rank, operation):
        """(the rank that this rank's side needed last, when that came); (None, -inf) if nobody."""
        meeting = self.meetings.get(operation)
        if meeting is None:
            return None, float("-inf")
        arrivals = meeting.arrivals(self.arrived)
        over = self.ended.get(operation, float("inf"))
        came = [
            (arrivals[other], other)
            for other in meeting.needed(rank)
            if other in arrivals and arrivals[other] <= over
        ]
        when, who = max(came, default=(float("-inf"), None))
        return who, when

    def segments(self, rank):
        """What a rank's time was spent on: (kind, begin, end), since the trace was opened."""
        now = self.items[rank][0].at - self.items[rank][0].before
        waits = {id(item): (waited, late) for item, waited, _, late in self.waits(rank)}
        for item in self.items[rank]:
            if item.at > now:
                yield "computing", now - self.began, item.at - self.began
            if item.what == "wait":
                came = item.at + waits[id(item)][0]
                if came > item.at:
                    yield "waiting", item.at - self.began, came - self.began
                if item.until > came:
                    yield "transfer", came - self.began, item.until - self.began
            now = max(now, item.until)

    def critical_path(self):
        """What the end waited for, in order of time: (rank, begin, end) since the trace's opening.

        Followed back from the end: on a rank while it computes or moves bytes; where it waited for
        another, on that one from its arrival back.
        """
        if not self.items:
            return []
        rank = max(self.items, key=lambda one: self.items[one][-1].until)
        place, now = len(self.items[rank]) - 1, self.items[rank][-1].until
        found = []
        while place >= 0:
            item = self.items[rank][place]
            place -= 1
            if item.what != "wait" or item.at > now:
                continue
            who, when = self.culprit(rank, item.operation)
            if who is None or when <= item.at:
                continue
            found.append((rank, when, now))
            arrived = self.meetings[item.operation].operations[who]
            rank, now = who, when
            place = self._begins(rank)[arrived] - 1
        found.append((rank, self.items[rank][0].at - self.items[rank][0].before, now))
        return [
            (one, begin - self.began, end - self.began)
            for one, begin, end in reversed(found)
            if end > begin
        ]

    def _begins(self, rank):
        """{operation: its place among a rank's items}."""
        if rank not in self._places:
            self._places[rank] = {
                item.operation: place
                for place, item in enumerate(self.items[rank])
                if item.what == "begin"
            }
        return self._places[rank]

    def kept_by(self, rank, operation):
        """The other sides that could keep this one waiting: they came before it was over."""
        meeting, over = self.meetings[operation], self.ended[operation]
        sides = [meeting.operations[other] for other in meeting.needed(rank)]
        return [side for side in sides if self.arrived.get(side, float("inf")) <= over]

    def waits(self, rank):
        """(item, seconds waited for another rank, seconds of transfer, that rank) of each wait."""
        for item in self.items[rank]:
            if item.what == "wait":
                who, when = self.culprit(rank, item.operation)
                waited = min(max(when - item.at, 0.0), item.until - item.at)
                yield item, waited, item.until - item.at - waited, who if waited else None


def _items(log, shift):
    """The items of one rank, in order."""
    found, end = [], log.began + shift if log.began is not None else float("-inf")
    waited = {step.operation for step in log.steps if step.what == "wait"}
    for step in log.steps:
        if step.what == "begin":
            found.append(Item("begin", step.operation, step.when + shift, step.when + shift))
        elif step.what == "wait" and step.until is not None:
            found.append(Item("wait", step.operation, step.when + shift, step.until + shift))
    found.sort(key=lambda item: item.at)
    found = _with_hidden_waits(found, waited, shift)
    for item in found:
        item.at, item.until = max(item.at, end), max(item.until, end)
        item.before = max(0.0, item.at - end) if end > float("-inf") else 0.0
        end = item.until
    return found


def _with_hidden_waits(items, waited, shift):
    """Add the waits of C++ for futures: after the last call before an operation's end."""
    found = []
    for place, item in enumerate(items):
        found.append(item)
        op = item.operation
        if item.what != "begin" or op in waited or op.ended is None or op.kind != "collective":
            continue
        over, following = op.ended + shift, items[place + 1 : place + 2]
        if over > item.at and not (following and following[0].at < over):
            found.append(Item("wait", op, item.at, over))
    return found


def _meetings(items):
    """{operation: the Meeting that it belongs to}."""
    met, counts = {}, defaultdict(Counter)
    for rank, mine in items.items():
        for item in mine:
            op = item.operation
            if item.what != "begin":
                continue
            if op.kind == "collective":
                key = op.group
            else:
                other = op.peer if op.peer is not None else op.source
                pair = (rank, other) if op.kind == "send" else (other, rank)
                key = (op.group, pair, op.tag)
            counts[rank][op.kind, key] += 1
            number = counts[rank][op.kind, key]
            met.setdefault((key, number), Meeting(number, {})).operations[rank] = op
    return {op: meeting for meeting in met.values() for op in meeting.operations.values()}
