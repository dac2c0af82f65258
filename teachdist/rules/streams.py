"""What follows what: units of work, the stream on which each runs, and who must meet first.

A unit is what begins and ends together: one operation, or a batch where the rules have streams
(NCCL makes one kernel of it). A rank's program becomes a list of (what, unit or operation).
"""

from dataclasses import dataclass, field


@dataclass(eq=False)
class Unit:
    """Operations of one rank that begin together. stream: None runs at once. meets: who must come.

    meets is (a name, the ranks that must all have come to it), or None. done: how many are over.
    """

    operations: list
    stream: tuple | None = None
    meets: tuple | None = None
    open: int = 0
    started: bool = False

    @property
    def first(self):
        """The operation that stands for it in messages."""
        return self.operations[0]


@dataclass(eq=False)
class Program:
    """One thread of one rank. at: the next item; blocked: on what it waits, for the words."""

    rank: int
    items: list = field(default_factory=list)
    at: int = 0
    blocked: object = None

    @property
    def over(self):
        """Whether it has done everything."""
        return self.at == len(self.items)


def programs(logs, rules):
    """The programs of {rank: its Log}, and {Operation: its Unit}."""
    found, units = {}, {}
    for rank, log in logs.items():
        batches = {}
        for step in log.steps:
            program = found.setdefault((rank, step.thread), Program(rank))
            if step.what == "poll":
                continue
            if step.what == "wait":
                program.items.append(("wait", step.operation))
                continue
            operation = step.operation
            together = rules["stream"] and operation.batch is not None
            unit = batches.get(operation.batch) if together else None
            if unit is not None:
                unit.operations.append(operation)
                unit.open += 1
                units[operation] = unit
                continue
            unit = Unit([operation], _stream(operation, rules), _meeting(operation, rules), 1)
            if together:
                batches[operation.batch] = unit
            units[operation] = unit
            program.items.append(("begin", unit))
    return list(found.values()), units


def _pair(operation):
    return tuple(sorted((operation.rank, operation.peer)))


def _single(operation, rules):
    """Whether it has a communicator of its pair of ranks."""
    return (
        rules["stream"] == "pair"
        and operation.kind != "collective"
        and operation.batch is None
        and operation.peer is not None
    )


def _stream(operation, rules):
    if operation.kind == "collective":
        if rules["one_device"]:
            return operation.rank, "collectives"
        return (operation.rank, operation.group) if rules["stream"] else None
    if not rules["stream"] or operation.peer is None:
        return None
    if _single(operation, rules):
        return operation.rank, operation.group, _pair(operation)
    return operation.rank, operation.group


def _meeting(operation, rules):
    if not rules["lazy"] or (operation.kind != "collective" and operation.peer is None):
        return None
    if _single(operation, rules):
        return (operation.group, _pair(operation)), _pair(operation)
    return (operation.group, None), operation.group[1]
