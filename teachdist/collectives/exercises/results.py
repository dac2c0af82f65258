"""Results of exercises in files, and what a whole class has done.

The idea: one JSON file per learner, written by `Exercise.check(..., save=file)`. A teacher collects
the files in a folder, and `report(folder)` tells who has passed what, and where a class gets stuck:
the kinds of counter-example, counted. Files come from others, so they are read with care: a file
that is no such record is named with the reason and skipped.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from teachdist.collectives.checker.faults import counted
from teachdist.collectives.exercises.tasks import TASKS

MOST_BYTES = 1_000_000
FORMAT = "teachdist exercises 1"


def record(file: str | Path, verdict, learner: str | None = None) -> None:
    """Add a Verdict to a learner's file; a passed exercise stays passed."""
    path = Path(file)
    kept: dict = _read(path) if path.exists() else {"format": FORMAT, "exercises": {}}
    kept["learner"] = learner or kept.get("learner") or path.stem
    entry = kept["exercises"].setdefault(
        verdict.exercise, {"passed": False, "attempts": 0, "faults": []}
    )
    entry["attempts"] += 1
    entry["passed"] = entry["passed"] or verdict.passed
    entry["last"] = datetime.now(UTC).isoformat(timespec="seconds")
    if not verdict.proof:
        entry["faults"] = [*entry["faults"], verdict.proof.kind][-20:]
    if verdict.yours is not None:
        entry["seconds"] = verdict.yours.seconds
        entry["target_seconds"] = verdict.target.seconds
    # First beside the old file, then in its place: an interrupt leaves the old one whole.
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(json.dumps(kept, indent=1), encoding="utf-8")
    fresh.replace(path)


@dataclass(frozen=True)
class Report:
    """What a class has done. `learners` is {name: {exercise: entry}}; as text, a table."""

    learners: dict[str, dict[str, dict]]
    unreadable: dict[str, str]

    def __str__(self):
        if not self.learners:
            return "\n".join(["no results", *self._notes()])
        names = [name for name in TASKS if any(name in done for done in self.learners.values())]
        wide = max(len("learner"), *map(len, self.learners))
        lines = [f"{'learner':{wide}}  " + "  ".join(names) + "  passed"]
        for learner, done in sorted(self.learners.items()):
            cells = [f"{_cell(done.get(name)):{len(name)}}" for name in names]
            passed = sum(entry["passed"] for entry in done.values())
            lines.append(f"{learner:{wide}}  " + "  ".join(cells) + f"  {passed} of {len(TASKS)}")
        return "\n".join([*lines, "", *self._notes()])

    __repr__ = __str__

    def _notes(self):
        notes = ["yes (n): passed, in n attempts; no (n): tried n times"] if self.learners else []
        faults = Counter(
            (name, kind)
            for done in self.learners.values()
            for name, entry in done.items()
            for kind in entry["faults"]
        )
        for (name, kind), count in faults.most_common(5):
            notes.append(f"{name}: {kind!r} was the counter-example {counted(count, 'time')}")
        notes += [f"{file} left out: {reason}" for file, reason in self.unreadable.items()]
        return notes


def report(folder: str | Path) -> Report:
    """Sum up the result files (*.json) in a folder."""
    path = Path(folder)
    if not path.is_dir():
        raise ValueError(
            f"folder: {str(folder)!r} is no folder; give the one with the result files"
        )
    learners: dict[str, dict[str, dict]] = {}
    unreadable: dict[str, str] = {}
    for file in sorted(path.glob("*.json")):
        try:
            kept = _read(file)
        except (OSError, ValueError) as error:
            unreadable[file.name] = str(error)
            continue
        name = str(kept.get("learner") or file.stem)
        if name in learners:
            name = f"{name} ({file.name})"
        learners[name] = kept["exercises"]
    return Report(learners, unreadable)


def _cell(entry):
    if entry is None:
        return "-"
    return f"{'yes' if entry['passed'] else 'no'} ({entry['attempts']})"


def _read(path: Path) -> dict:
    """A learner's file, checked; a ValueError says what is wrong with it."""
    if path.stat().st_size > MOST_BYTES:
        raise ValueError(f"more than {MOST_BYTES} bytes")
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"no JSON ({error})") from None
    if not isinstance(kept, dict) or kept.get("format") != FORMAT:
        raise ValueError(f"no record of exercises (its format isn't {FORMAT!r})")
    done = kept.get("exercises")
    if not isinstance(done, dict) or not all(_is_entry(entry) for entry in done.values()):
        raise ValueError("its exercises aren't written as they should be")
    return kept


def _is_entry(entry) -> bool:
    return (
        isinstance(entry, dict)
        and isinstance(entry.get("passed"), bool)
        and isinstance(entry.get("attempts"), int)
        and isinstance(entry.get("faults"), list)
        and all(isinstance(kind, str) for kind in entry["faults"])
    )
