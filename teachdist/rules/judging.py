"""Judging a log by a rule set: what it refuses, what would differ there, and where it would hang.

Which rule a hang is due to is found by taking rules away, one at a time: if the program then comes
to its end, it was that one.
"""

from teachdist.rules.machine import Machine
from teachdist.rules.tables import FREE, Rules, rules_named
from teachdist.rules.verdict import Finding, Verdict, standstill
from teachdist.words import ranks_words

# The rules that decide who waits for whom; of several that are broken the first is named.
_MATTER = ("lazy", "one_device", "stream", "buffers")


def judge(logs, rules):
    """What {rank: Log} would meet under the rules of that name; a `Verdict`.

    Raises:
        ValueError: there are no rules of that name.
    """
    rules = rules_named(rules)
    operations = [
        step.operation for log in logs.values() for step in log.steps if step.what == "begin"
    ]
    findings = [*_refused(operations, rules), *_uneven(operations, rules)]
    notes = _notes(logs, operations, rules)
    if not any("is not in the log" in note for note in notes):
        findings += _played(logs, rules)
    return Verdict(rules.name, tuple(findings), tuple(notes))


def _played(logs, rules):
    machine = Machine(logs, rules)
    if machine.run():
        return _odd(machine, rules) + _left(machine)
    text, places = standstill(machine)
    guilty = [
        name
        for name in _MATTER
        if rules[name] != FREE[name] and Machine(logs, rules.without(name)).run()
    ]
    rule = rules.rule(guilty[0]) if guilty else None
    if not guilty and not Machine(logs, Rules("this package", ())).run():
        text = f"{text}; it hangs under any rules"
    return [Finding("hang", rule, text, places)]


def _left(machine):
    found = []
    for operation in machine.unfinished()[:4]:
        text = f"rank {operation.rank} begins {operation}, which never ends: nobody answers it"
        found.append(Finding("hang", None, text, {operation.rank: operation.site}))
    return found


def _odd(machine, rules):
    found = []
    for send, receive in machine.odd[:4]:
        if send.tag != receive.tag and not rules["tags"]:
            text = (
                f"rank {receive.rank} would get in {receive} what rank {send.rank} sends in {send}"
            )
            places = {send.rank: send.site, receive.rank: receive.site}
            found.append(Finding("differs", rules.rule("tags"), text, places))
    return found


def _refused(operations, rules):
    found = {}
    for operation in operations:
        if operation.kind == "recv" and operation.peer is None and not rules["anybody"]:
            found.setdefault((str(operation), "anybody"), []).append(operation)
        if operation.how in rules["refused"]:
            found.setdefault((str(operation), "refused"), []).append(operation)
        if operation.uneven and not rules["uneven"]:
            found.setdefault((str(operation), "uneven"), []).append(operation)
    return [
        Finding("refused", rules.rule(name), f"{_ranks(those)}: {words}", _sites(those))
        for (words, name), those in found.items()
    ]


def _uneven(operations, rules):
    """Collectives to which ranks give different sizes, where none of them could know it."""
    if rules["uneven"]:
        return []
    counts, calls = {}, {}
    for operation in operations:
        if operation.kind == "collective":
            place = operation.group, operation.rank
            counts[place] = counts.get(place, 0) + 1
            calls.setdefault((operation.group, counts[place]), []).append(operation)
    found = []
    for those in calls.values():
        same = those[0].name not in ("all_gather", "reduce_scatter")
        same = same or len({one.nbytes for one in those}) == 1
        if not same and not any(one.uneven for one in those):
            text = "; ".join(f"rank {one.rank}: {one}" for one in those[:4])
            found.append(Finding("refused", rules.rule("uneven"), text, _sites(those)))
    return found


def _notes(logs, operations, rules):
    notes = []
    absent = sorted({rank for o in operations for rank in o.group[1]} - set(logs))
    if absent:
        notes.append(
            f"{ranks_words(absent)} is not in the log, so who waits for whom can't be seen; "
            "gather the traces of all ranks first"
        )
    anybody = {o.site for o in operations if o.kind == "recv" and o.peer is None}
    if anybody and rules["anybody"]:
        places = ", ".join(sorted(anybody)[:3])
        notes.append(f"receives from anybody ({places}) were taken to go as they went")
    objects = {o.site for o in operations if o.objects}
    if objects and rules["objects_need_device"]:
        rule = rules.rule("objects_need_device")
        notes.append(f"{', '.join(sorted(objects)[:3])}: {rule.says}")
    if any(step.thread for log in logs.values() for step in log.steps):
        notes.append("a rank has several threads; their order among each other is not judged")
    return notes


def _ranks(operations):
    return ranks_words(sorted({operation.rank for operation in operations}))


def _sites(operations):
    return {operation.rank: operation.site for operation in operations}
