"""The table on the page of benchmarks, from a run that was stored:

    teachdist bench --threads 1,2 --links shm,tcp --json docs/benchmarks.json

`python docs/tools/benchmarks.py FILE.json` prints what the page would show of another run.
"""

import json
import sys
from pathlib import Path

from teachdist.bench.report import size
from teachdist.bench.targets import target

STORED = Path(__file__).resolve().parents[1] / "benchmarks.json"
MARK = "<!-- benchmark -->"
NONE = "No run has been stored yet."
TITLES = {"shm": "Ranks that share memory", "tcp": "Sockets alone, on one host"}


def fill(text: str, stored: Path = STORED) -> str:
    """The page with the run's tables in place of `<!-- benchmark -->`."""
    if MARK not in text:
        return text
    shown = tables(json.loads(stored.read_text("utf-8"))) if stored.exists() else NONE
    return text.replace(MARK, shown)


def tables(found: dict) -> str:
    """How it was measured, and a table for each kind of links."""
    machine = found["machine"]
    copied = max(row["copy"] for row in found["rows"]) / 1e9
    how = (
        f"Measured by `{found['command']}` on {machine['processors']} processors "
        f"({machine['system']}), Python {machine['python']}, torch {machine['torch']}; load of the "
        f"machine at the end: {machine['load']:.1f}. A plain copy of memory moved "
        f"{copied:.1f} GB/s."
    )
    parts = [how]
    for kind in found["arguments"]["links"]:
        parts += [f"## {TITLES[kind]}", table(found["rows"], kind)]
    return "\n\n".join([*parts, *at_best(found["rows"])])


def at_best(rows: list[dict]) -> list[str]:
    """What overlap could reach at best: what computing alone would have reached."""
    by_column = {}
    for row in rows:
        if row.get("alone"):
            found = row["seconds"]["gloo"] / row["alone"]
            by_column.setdefault((row["ranks"], row["threads"]), []).append(found)
    if not by_column:
        return []
    shown = [
        f"{_ratio(min(found))} to {_ratio(max(found))} with {ranks} ranks and {_threads(threads)}"
        for (ranks, threads), found in by_column.items()
    ]
    said = (
        "Overlap computes as well. Computing alone, without any communication, would have had "
        f"these ratios: {'; '.join(shown)}. But for what varies from block to block, no way to "
        "communicate can do better. Where ranks and threads are more than processors, computing "
        "takes most of the time, and that varies much."
    )
    return [said]


def table(rows: list[dict], kind: str) -> str:
    """The ratios: a line per operation and size, a column per number of ranks and threads."""
    columns = list(dict.fromkeys((row["ranks"], row["threads"]) for row in rows))
    cells = {
        (row["op"], row["nbytes"], row["ranks"], row["threads"]): row["seconds"]["gloo"]
        / row["seconds"][kind]
        for row in rows
    }
    heads = [f"{ranks} ranks, {_threads(threads)}" for ranks, threads in columns]
    lines = [
        f"| operation | bytes | {' | '.join(heads)} | wanted |",
        f"| --- | ---: |{' ---: |' * (len(heads) + 1)}",
    ]
    for op, nbytes in dict.fromkeys((row["op"], row["nbytes"]) for row in rows):
        wanted = target(op, nbytes, kind)
        shown = [_ratio(cells.get((op, nbytes, *column)), wanted) for column in columns]
        at = "" if nbytes == 0 else size(nbytes)
        lines.append(f"| {op} | {at} | {' | '.join(shown)} | {wanted or ''} |")
    return "\n".join(lines)


def _threads(number):
    return "1 thread" if number == 1 else f"{number} threads"


def _ratio(ratio, wanted=None):
    if ratio is None:
        return ""
    text = f"{ratio:.2g}" if ratio < 10 else f"{ratio:.0f}"
    return f"*{text}*" if wanted and round(ratio, 1) < wanted else text


if __name__ == "__main__":
    path = Path(sys.argv[1]) if sys.argv[1:] else STORED
    sys.stdout.write(tables(json.loads(path.read_text("utf-8"))) + "\n")
