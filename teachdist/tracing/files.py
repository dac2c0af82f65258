"""Traces in files: a job that has ended can still say why it was slow.

    TEACHDIST_TRACE=DIR torchrun --nproc-per-node 4 train.py      # an unchanged program
    teachdist explain DIR

Each rank writes one JSON file when it leaves the job, or when its program ends: what it called,
when, for what it waited, and the lines at which it was seen. A rank that is killed writes none;
what the others have seen of it is in theirs. A file is written under another name and then renamed,
so it is whole or not there. The form is plain: lists of numbers and texts.
"""

import json
import os
import socket
from dataclasses import dataclass, field
from pathlib import Path

from teachdist.rules.log import Log, Operation, Step

FORMAT = "teachdist trace 1"
_FIELDS = (
    "kind", "name", "words", "site", "rank", "peer", "tag", "nbytes", "batch", "how", "objects",
    "uneven", "source", "root", "title", "ended",
)  # fmt: skip


class TraceFileError(ValueError):
    """A file that is no trace, or a folder without any."""


@dataclass(eq=False)
class Stored:
    """What one rank has written. lines: [(when, line)]; host: what tells its host from others."""

    rank: int
    log: Log
    host: str = ""
    lines: list = field(default_factory=list)


def save(rank, log, path, lines=()):
    """Write what a rank called to a file; the path."""
    path = Path(path)
    groups, numbers = [], {}
    operations = list(dict.fromkeys(step.operation for step in log.steps))
    for number, operation in enumerate(operations):
        numbers[operation] = number
        if operation.group not in groups:
            groups.append(operation.group)
    told = {
        "format": FORMAT,
        "rank": rank,
        "host": socket.gethostname(),
        "began": log.began,
        "groups": [[name, list(ranks)] for name, ranks in groups],
        "operations": [
            [groups.index(operation.group), *(getattr(operation, name) for name in _FIELDS)]
            for operation in operations
        ],
        "steps": [
            [step.what, numbers[step.operation], step.thread, step.when, step.until]
            for step in log.steps
        ],
        "lines": [list(one) for one in lines],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(told), encoding="utf-8")
    os.replace(part, path)
    return path


def load(path):
    """{rank: `Stored`} of a file, or of all traces in a folder.

    Raises TraceFileError for what is no trace, and for two files of one rank.
    """
    path = Path(path)
    if not path.exists():
        raise TraceFileError(f"{path}: there is nothing of that name")
    files = sorted(path.glob("rank*.json")) if path.is_dir() else [path]
    if not files:
        raise TraceFileError(
            f"{path}: no trace in this folder, which would be files like rank0.json; "
            "TEACHDIST_TRACE=DIR has every rank write one when it ends"
        )
    found = {}
    for file in files:
        stored = _read(file)
        if stored.rank in found:
            raise TraceFileError(f"{file}: there is another file of rank {stored.rank}")
        found[stored.rank] = stored
    return found


def _read(file):
    try:
        told = json.loads(file.read_text("utf-8"))
        if told["format"] != FORMAT:
            raise TraceFileError(f"{file}: format {told['format']!r}, expected {FORMAT!r}")
        groups = [(name, tuple(ranks)) for name, ranks in told["groups"]]
        operations = [
            Operation(group=groups[number], **dict(zip(_FIELDS, values, strict=True)))
            for number, *values in told["operations"]
        ]
        log = Log(
            [Step(what, operations[n], *rest) for what, n, *rest in told["steps"]], told["began"]
        )
        lines = [tuple(one) for one in told["lines"]]
        return Stored(int(told["rank"]), log, str(told["host"]), lines)
    except TraceFileError:
        raise
    except (OSError, UnicodeDecodeError) as error:
        raise TraceFileError(f"{file}: can't be read: {error}") from error
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise TraceFileError(f"{file}: is not a trace of this package: {error}") from error
