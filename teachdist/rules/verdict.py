"""The answer: whether a program would run elsewhere, and if not, who waits for whom and where."""

from dataclasses import dataclass, field

from teachdist.words import ranks_words


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong. kind: "hang", "refused" or "differs". places: {rank: file:line}."""

    kind: str
    rule: object
    text: str
    places: dict = field(default_factory=dict)

    def __str__(self):
        if self.rule is None:
            return self.text
        return f"{self.text}\n    the rule: {self.rule.says} ({self.rule.source})"


@dataclass(frozen=True)
class Verdict:
    """Truthy if all is well. findings: what is wrong. notes: what could not be seen."""

    rules: str
    findings: tuple = ()
    notes: tuple = ()

    def __bool__(self):
        return not self.findings

    def __str__(self):
        head = f"by the rules of {self.rules}: "
        if not self.findings:
            lines = [f"{head}nothing would hang or differ"]
        else:
            lines = [f"{head}{one}" for one in self.findings]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    __repr__ = __str__


def standstill(machine):
    """(words, {rank: file:line}) for a machine in which nobody can go on."""
    said = {}
    places = {}
    awaited = {}
    for program in machine.stuck():
        operation, words, others = _why(machine, program)
        places.setdefault(program.rank, operation.site)
        awaited.setdefault(program.rank, set()).update(others)
        said.setdefault(words, set()).add(program.rank)
    circle = _circle(awaited)
    lines = [
        f"{ranks_words(sorted(ranks))} {'waits' if len(ranks) == 1 else 'wait'} in {words}"
        for words, ranks in said.items()
        if not circle or ranks & set(circle)
    ]
    shown = lines[:6] + ([f"{len(lines) - 6} more"] if len(lines) > 6 else [])
    head = "nobody can go on: "
    if circle:
        who = ranks_words(sorted(circle))
        head = f"{who} wait for each other{' in a circle' if len(circle) > 2 else ''}: "
    return head + "; ".join(shown), places


def _why(machine, program):
    """(the operation, words, the ranks for which it waits)."""
    what, item = program.items[program.at]
    if what == "begin":  # it waits for the others to meet
        missing = set(item.meets[1]) - machine.came[item.meets[0]]
        words = f"{item.first}, its communicator's first use"
        return item.first, f"{words}, for {ranks_words(sorted(missing))}", missing
    unit = machine.units[item]
    if not unit.started:
        ahead = machine.streams[unit.stream][0]
        stuck = next(one for one in ahead.operations if one not in machine.over)
        return item, f"{item}, behind {stuck} on the same stream", _others(machine, stuck)
    return item, str(item), _others(machine, item)


def _others(machine, operation):
    if operation.kind == "collective":
        here = machine.meetings[operation.group, machine.number(operation) - 1]
        return set(operation.group[1]) - set(here)
    return {operation.peer if operation.peer is not None else operation.source} - {None}


def _circle(awaited):
    """The ranks of a circle of waits, or []."""
    for start in awaited:
        path, seen = [start], {start}
        while True:
            onward = sorted(rank for rank in awaited[path[-1]] if rank in awaited)
            if not onward:
                break
            if onward[0] in seen:
                return path[path.index(onward[0]) :]
            path.append(onward[0])
            seen.add(onward[0])
    return []
