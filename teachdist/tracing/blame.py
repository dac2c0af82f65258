"""Why is it slow? Who kept whom waiting, how long, because of what.

    with teachdist.trace(lines=True) as t: ...
    blame = teachdist.tracing.gather(t).blame()          # on all ranks
    blame = teachdist.rehearse(train, ranks=8).blame()   # or of a rehearsal
    print(blame)                         # a sentence, a table by rank, a table by line

Each wait is split: until the last rank came that this side needed it waited *for that rank*, and
from then on for the transfer (`program.py`). Who comes late may have been kept waiting itself, so
each wait is followed back to its cause (`causes.py`).

What a delay costs is not the sum of all waits for it, since another rank would be late in its
place. So the run is played again without the delay (`replay.py`), and the difference is told, as
Coz's virtual speed-ups do (Curtsinger, Berger: "Coz: finding code that counts", 2015).

Costs: some 10 us for each call and rank that was traced, all of it afterwards.
"""

from collections import defaultdict
from functools import cached_property
from html import escape
from statistics import median

from teachdist.pictures import svg
from teachdist.pictures.waits import waits
from teachdist.tracing.align import shifts
from teachdist.tracing.causes import Causes, Reason
from teachdist.tracing.program import Program
from teachdist.tracing.replay import replay
from teachdist.tracing.steps import Steps
from teachdist.words import in_seconds, table

_WORTH = 0.02  # a share of all time below which waiting is not worth a sentence


class Blame:
    """Who kept whom waiting in a traced run. Its text is a sentence and two tables.

    program: the `Program` of the run. lines: {rank: [(when, line)]}, where it computed, if noted.
    spent: {rank: [seconds computing, waiting, in transfers]}.
    """

    def __init__(self, program, lines=None):
        self.program = program
        self.lines = lines or {}
        self.spent = {}
        self._steps = {rank: Steps(items) for rank, items in program.items.items()}
        self._causes, self._reasons = Causes(program), {}
        for rank in program.items:
            self._add(rank)

    def _add(self, rank):
        """The waits of one rank, each with its cause."""
        waiting = transfers = 0.0
        for item, waited, transfer, late in self.program.waits(rank):
            waiting, transfers = waiting + waited, transfers + transfer
            if waited > 0.0:
                side = self.program.meetings[item.operation].operations[late]
                self._count(self._causes.of(side, item.at), waited)
        computed = sum(item.before for item in self.program.items[rank])
        self.spent[rank] = [computed, waiting, transfers]

    def _count(self, cause, waited):
        op = cause.operation
        key = op.rank, cause.kind, op.site, op.name, op.group
        if key not in self._reasons:
            self._reasons[key] = Reason(*key[:4], op.title or op.group[0])
        reason = self._reasons[key]
        reason.waited += waited
        reason.unusual += waited if cause.unusual else 0.0
        number = self.program.meetings[op].number
        step = self._steps[op.rank].of(op)
        reason.late.setdefault(op, (step, cause.seconds, number, cause.since))

    # -- what is said --------------------------------------------------------------------------

    @cached_property
    def reasons(self):
        """All `Reason`s; first those that cost most.

        What is unusual comes before what is not, and what comes again before a late start.
        """

        def weight(reason):
            once = 0.1 if reason.kind == "starting" else 1.0
            return once * (reason.unusual + 0.1 * reason.waited)

        return sorted(self._reasons.values(), key=weight, reverse=True)

    def without(self, reason=None, most=float("inf")):
        """Seconds that the run would have taken without a reason (default: the first).

        most: seconds of a delay from which on it is left in, as it is another matter.
        """
        reason = reason or (self.reasons[0] if self.reasons else None)
        late = reason.late if reason is not None else {}
        delays = {operation: entry[1] for operation, entry in late.items() if entry[1] <= most}
        ends = replay(self.program, self._shortened(delays))
        return max(ends.values(), default=0.0)

    def _shortened(self, delays):
        """Computing with each delay taken from the items before its operation, back to a wait."""
        less = {}
        for operation, delay in delays.items():
            items, place = self.program.items[operation.rank], self._causes.place[operation]
            while delay > 0 and place >= 0 and items[place].what != "wait":
                less[items[place]] = min(delay, items[place].before)
                delay -= less[items[place]]
                place -= 1
            if delay > 0 and place >= 0:
                less[items[place]] = min(delay, items[place].before)
        return lambda rank, item: item.before - less.get(item, 0.0)

    @property
    def seconds(self):
        """From the first call to the end."""
        return self.program.seconds

    @property
    def step(self):
        """The seconds of a step, the median of all ranks; None if nothing repeats itself."""
        found = [steps.seconds for steps in self._steps.values() if steps.seconds is not None]
        return median(found) if found else None

    @cached_property
    def sentence(self):
        """What an engineer wants to know, in words."""
        everything = sum(map(sum, self.spent.values()))
        waiting = sum(spent[1] for spent in self.spent.values())
        if not everything:
            return "Nothing was traced: no rank called anything while the trace was open."
        if waiting < _WORTH * everything or not self.reasons:
            return self._nobody_waits(everything)
        first = self.reasons[0]
        ranks = {reason.rank for reason in self.reasons}
        unusual = sum(reason.unusual for reason in self.reasons)
        share = sum(r.unusual for r in self.reasons if r.rank == first.rank) / max(unusual, 1e-12)
        if unusual and share < 0.5 and len(ranks) > 2:
            return self._jitter(waiting, everything)
        return self._blamed(first)

    def _blamed(self, reason):
        """The sentence on one rank and one line."""
        steps, most = self._steps[reason.rank], 3 * reason.seconds if reason.steps else float("inf")
        saved = self.seconds - self.without(reason, most)
        affected = [step for step in reason.steps if step in steps.durations]
        whole, each, of = self.seconds, 1, "in all"
        if affected:
            whole = median(steps.durations[number] for number in affected)
            each, of = len(reason.steps), "a step"
        text = f"Of {in_seconds(whole)} {of} {in_seconds(saved / each)} are spent waiting for "
        text += f"rank {reason.rank}, which "
        group = f' of group "{reason.group}"' if reason.group not in ("", "0") else ""
        call = f"{reason.name} {reason.number}{group} at {reason.site}"
        if reason.kind == "starting":
            text += f"comes {in_seconds(reason.seconds)} late to its first call, {call}"
        elif reason.kind == "transfer":
            text += f"is kept by a slow transfer in {call}"
        else:
            since = "between two calls" if reason.since == reason.site else f"since {reason.since}"
            text += (
                f"comes {in_seconds(reason.seconds)} late to {call}: its time {since} is longer "
                f"than the others'{self._when(reason, steps)}"
            )
        if reason.kind != "transfer" and (line := self._line(reason)):
            text += f", most of it at {line}"
        return text + "."

    def _when(self, reason, steps):
        """In which steps: ", from step 12 on", ", in steps 3 and 7"."""
        numbers = reason.steps
        if steps.count < 3 or not numbers:
            return ""
        first = min(numbers)
        if len(numbers) >= 0.8 * (steps.count - first + 1):
            return ", in every step" if first <= 2 else f", from step {first} on"
        if len(numbers) <= 4:
            return f", in step {', '.join(map(str, numbers))} only"
        return f", in {len(numbers)} of {steps.count} steps"

    def _line(self, reason):
        """The line at which the late rank was most often seen, in the stretches that were late."""
        seen = defaultdict(int)
        for operation in reason.late:
            rank, place = operation.rank, self._causes.place[operation]
            items = self.program.items[rank]
            until = items[place].at
            before = [item.until for item in items[:place] if item.what == "wait"][-1:]
            since = before[0] if before else self.program.began
            for when, line in self.lines.get(rank, ()):
                if since <= when <= until:
                    seen[line] += 1
        return max(seen, key=seen.get) if seen else ""

    def _jitter(self, waiting, everything):
        """No rank is to blame: they take turns."""
        late = defaultdict(float)
        for reason in self.reasons:
            late[reason.rank] += reason.waited
        worst = sorted(late, key=late.get, reverse=True)[:3]
        told = ", ".join(f"rank {r} {late[r] / waiting:.0%}" for r in worst)
        return (
            f"{waiting / everything:.0%} of all time is spent waiting, but for one rank now and "
            f"another then ({told} of it): that is jitter, not a slow rank."
        )

    def _nobody_waits(self, everything):
        computing, _, transfers = (sum(part) for part in zip(*self.spent.values(), strict=True))
        if transfers < computing:
            return (
                f"No rank waits for another: {computing / everything:.0%} of the time is "
                f"computing, {transfers / everything:.0%} transfers that computing does not hide."
            )
        (site, name), seconds = max(self._transfers().items(), key=lambda row: row[1])
        return (
            f"No rank waits for another, the time goes into moving bytes: transfers take "
            f"{transfers / everything:.0%} of it, {seconds / transfers:.0%} of these in {name} at "
            f"{site}."
        )

    def _transfers(self):
        """{(line, operation): seconds that ranks stood still for bytes}."""
        found = defaultdict(float)
        for rank in self.program.items:
            for item, _, transfer, _ in self.program.waits(rank):
                found[item.place] += transfer
        return dict(found)

    def by_rank(self):
        """A table: what each rank's time was spent on, and how long others waited for it."""
        kept = defaultdict(float)
        for reason in self.reasons:
            kept[reason.rank] += reason.waited
        rows = [("rank", "computing", "waiting", "transfer", "others waited for it")]
        for rank, spent in self.spent.items():
            rows.append((str(rank), *map(in_seconds, spent), in_seconds(kept[rank])))
        return table(rows)

    def by_line(self, most=10):
        """A table: the reasons that cost most, with what the run would take without each."""
        rows = [("late at", "call", "rank", "why", "others waited", "without it")]
        least = 0.001 * max(self.reasons[0].waited, 1e-9) if self.reasons else 0.0
        for one in [reason for reason in self.reasons if reason.waited >= least][:most]:
            cost = in_seconds(one.waited), in_seconds(self.without(one))
            rows.append((one.site, one.name, str(one.rank), one.kind, *cost))
        return table(rows)

    def svg(self):
        """A picture of when each rank computed and waited, and of the critical path; SVG.

        Of a run of many steps three are drawn, around one in which the first reason struck.
        """
        rows = {rank: list(self.program.segments(rank)) for rank in self.program.items}
        window, first = (0.0, self.seconds), self.reasons[0] if self.reasons else None
        if first is not None:
            steps, struck = self._steps[first.rank], first.steps
            if steps.count > 4 and struck:
                window = steps.around(struck[len(struck) // 2], self.program.began)
        title = f"Three steps of {len(rows)} ranks" if window[0] else f"{len(rows)} ranks"
        return waits(rows, self.program.critical_path(), window, title)

    def _repr_html_(self):
        tables = escape(self._tables())
        return (
            f"{svg.image(self.svg(), self.sentence)}<p>{escape(self.sentence)}</p>"
            f'<pre style="overflow-x:auto;max-width:100%">{tables}</pre>'
        )

    def _tables(self):
        return f"{self.by_rank()}\n\n{self.by_line()}" if self.reasons else self.by_rank()

    def __str__(self):
        return f"{self.sentence}\n\n{self._tables()}"

    def __repr__(self):
        return self.sentence


def blame(logs, hosts=None, lines=None):
    """A `Blame` of {rank: Log}.

    hosts: {rank: its host}, whose clocks are put together. lines: {rank: [(when, line)]}.
    """
    program, lines = Program(logs), lines or {}
    if hosts and len(set(hosts.values())) > 1:
        moved = shifts(program, hosts)
        program = Program(logs, moved)
        lines = {rank: [(when + moved.get(rank, 0.0), line) for when, line in seen]
                 for rank, seen in lines.items()}  # fmt: skip
    return Blame(program, lines)
