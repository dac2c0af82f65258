"""Would it hang elsewhere? What other backends promise less, and a machine that plays by it.

Rooms
    log.py        what the ranks called, in order: kept by traces and by rehearsals
    tables.py     the rule sets nccl, nccl-eager, gloo and mpi, each rule with its source
    machine.py    plays the calls again, under rules, without any data
    streams.py    what goes where: which operations follow each other, which meet first
    judging.py    finds what is wrong, and which rule it is that is broken
    verdict.py    the answer, in sentences with their lines
    lint.py       what the text of a program shows, before it runs
    picture.py    who called what and who waits, drawn

A trace answers `trace.check(rules="nccl")` (of all ranks: `tracing.gather`), a rehearsal the same,
and `teachdist.rehearse(fn, rules="nccl")` raises.
"""

from teachdist.rules.judging import judge
from teachdist.rules.log import Log, Operation, Step
from teachdist.rules.tables import RULES, Rule, Rules, rules_named, table
from teachdist.rules.verdict import Verdict

__all__ = [
    "RULES",
    "Log",
    "Operation",
    "Rule",
    "Rules",
    "Step",
    "Verdict",
    "judge",
    "rules_named",
    "table",
]
