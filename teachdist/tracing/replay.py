"""Play a traced run again with other times: what if one rank's delay were gone?

Nothing but computing, arrivals and transfers makes time pass (`program.py`). So the same calls can
be gone through once more: a rank computes, begins an operation, and where it waits it goes on when
all have come whom its side needs, and the transfer has taken what it took. Transfers of one group
follow each other.

Played with its own times a run gives its own end, to rounding. What it can't know: whether a rank
that no longer waits would compute at the same pace (on shared processors it would not).

Costs a few microseconds for each call of each rank.
"""


def replay(program, computing=None):
    """When each rank would be done: {rank: seconds since the trace was opened}.

    computing(rank, item): the seconds of computing before an item, if not those that were.
    """
    return _Replay(program, computing or (lambda rank, item: item.before)).run()


class _Replay:
    def __init__(self, program, computing):
        self.program, self.computing = program, computing
        self.arrived, self.ended = {}, {}  # {operation: when}, of this replay
        self.before = _order(program)

    def run(self):
        items = self.program.items
        clock = {rank: mine[0].at - mine[0].before for rank, mine in items.items()}
        ahead = dict.fromkeys(items, 0)
        stuck = False
        while any(ahead[rank] < len(items[rank]) for rank in items):
            moved = False
            for rank in items:
                while ahead[rank] < len(items[rank]) and self._step(rank, ahead, clock, stuck):
                    moved, stuck = True, False
            stuck = not moved  # the trace lacks a call: whoever waits for it is let go
        return {rank: now - self.program.began for rank, now in clock.items()}

    def _step(self, rank, ahead, clock, stuck):
        """The next item of a rank; whether it could be done."""
        item = self.program.items[rank][ahead[rank]]
        now = clock[rank] + self.computing(rank, item)
        if item.what == "begin":
            self.arrived[item.operation] = now
        else:
            over = self._over(rank, item.operation, stuck)
            if over is None:
                return False
            now = max(now, over)
        clock[rank] = now
        ahead[rank] += 1
        return True

    def _over(self, rank, operation, stuck):
        """When an operation is over on a rank; None as long as somebody has to come."""
        chain = []
        while operation in self.program.ended and operation not in self.ended:
            chain.append(operation)
            operation = self.before.get(operation)
        last = operation
        for op in reversed(chain):
            needs = self.program.kept_by(rank, op)
            if not stuck and any(each not in self.arrived for each in needs):
                return None
            was, now = self.program.arrived, self.arrived
            start = [was[op], *(was[each] for each in needs)]
            starts = [now[op], *(now[each] for each in needs if each in now)]
            if last in self.ended:
                start.append(self.program.ended[last])
                starts.append(self.ended[last])
            takes = max(0.0, self.program.ended[op] - max(start))
            self.ended[op] = max(starts) + takes
            last = op
        return self.ended.get(last, self.arrived.get(last, float("-inf")))


def _order(program):
    """{collective: that of the same group before it, on the same rank}."""
    before = {}
    for items in program.items.values():
        last = {}
        for item in items:
            op = item.operation
            if item.what == "begin" and op.kind == "collective":
                before[op] = last.get(op.group)
                last[op.group] = op
    return before
