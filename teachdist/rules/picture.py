"""A run as a picture: each rank's calls, who met whom, and who waits for ever."""

from teachdist.pictures import svg
from teachdist.pictures.ladder import ladder
from teachdist.rules.machine import Machine
from teachdist.rules.tables import Rules, rules_named

MANY = 12  # ranks that fit on a picture


def picture(logs, title, rules=None):
    """{rank: Log} as HTML with an SVG; calls that never end are red. rules: those of a set."""
    machine = Machine(logs, rules_named(rules) if rules else Rules("this package", ()))
    machine.run()
    ranks = sorted(logs)[:MANY]
    begun = {rank: [s.operation for s in logs[rank].steps if s.what == "begin"] for rank in ranks}
    rows = _rows(begun, machine.met)
    waited = {p.items[p.at][1] for p in machine.stuck() if p.items[p.at][0] == "wait"}
    boxes = [
        (ranks.index(rank), rows[one], _words(one), _kind(one, machine, waited))
        for rank, operations in begun.items()
        for one in operations
    ]
    arrows = [
        ((ranks.index(send.rank), rows[send]), (ranks.index(receive.rank), rows[receive]))
        for send, receive in machine.pairs
        if send in rows and receive in rows
    ]
    names = [f"rank {rank}" for rank in ranks]
    return svg.image(ladder(title.partition("\n")[0][:110], names, boxes, arrows), title)


def _rows(begun, met):
    """{operation: row}: below what its rank did before, and beside those whom it met."""
    rows = {}
    for _ in range(1 + sum(map(len, begun.values()))):
        before = dict(rows)
        for operations in begun.values():
            below = 0
            for one in operations:
                beside = [rows.get(other, 0) for other in met.get(one, ())]
                rows[one] = max([below, rows.get(one, 0), *beside])
                below = rows[one] + 1
        if rows == before:
            break
    return rows


def _words(operation):
    if operation.kind == "collective":
        return operation.name
    other = "anybody" if operation.peer is None else f"rank {operation.peer}"
    return f"send to {other}" if operation.kind == "send" else f"recv from {other}"


def _kind(operation, machine, waited):
    if operation in waited:
        return "stuck"
    return "done" if operation in machine.over else "never"
