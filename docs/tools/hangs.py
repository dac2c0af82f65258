"""The hang gallery: examples/hangs/NN-name as a page of riddles with their answers.

A case is broken.py (its docstring asks the question), fixed.py, and hang.toml: title, ranks, why,
remedy, and a table for each way in which it was tried, with the words that were said: on teachdist,
on gloo where that says something else, and in a notebook where ranks stay.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "examples" / "hangs"))

import gallery  # noqa: E402


def pages() -> dict[str, str]:
    """The page of the gallery."""
    sections = [section(case) for case in gallery.CASES]
    return {"hangs.md": _HEAD + "\n\n".join(sections or ["The gallery is being hung."]) + "\n"}


def section(case: str) -> str:
    """One mistake: the riddle, and behind a click what is said, why, and the remedy."""
    told = gallery.about(case)
    answer = [
        *(_words(table, told[table]) for table in _TABLES if table in told),
        f"**Why.** {_one_line(told['why'])}",
        f"**Remedy.** {_one_line(told['remedy'])}",
        _code(case, "fixed"),
    ]
    if told.get("seen"):
        answer.append(f"Seen in {', '.join(_report(name) for name in told['seen'])}.")
    inside = "\n\n".join(answer).replace("\n", "\n    ").replace("\n    \n", "\n\n")
    return "\n\n".join(
        [
            f"## {told['title']} {{#{Path(case).name}}}",
            f"{told['ranks']} ranks. {gallery.question(case)}",
            _code(case, "broken"),
            f'??? success "What it says, why, and the remedy"\n\n    {inside}',
        ]
    )


def _words(table, tried):
    """What was said, and on which ranks."""
    words = tried.get("says", "").strip()
    if not words:
        return "On teachdist it works."
    where = f"on ranks {', '.join(map(str, tried['on']))}" if tried.get("on") else "on the ranks"
    title = _TABLES[table].format(where=where)
    if "after" in tried:
        title += f", after a time-out of {tried['after']:g} s (by default 30 minutes)"
    return f'```text title="{title}"\n{words}\n```'


def _code(case, which):
    """A program without its docstring, which the page tells in its own way."""
    return f'```python title="{which}.py"\n{gallery.program(case, which).strip()}\n```'


def _report(name):
    return name.replace("pt#", "pytorch/pytorch#")


def _one_line(text):
    return " ".join(text.split())


_TABLES = {
    "teachdist": "teachdist says, {where}",
    "notebook": "a notebook shows",
    "gloo": "gloo says",
    "rules": 'teachdist.rehearse(main, rules="nccl") says',
}
_HEAD = """---
hide: [navigation]
---
# The hang gallery

Mistakes that people really make, each as a riddle: a program that hangs or goes wrong. Find it,
then look at what teachdist says, and at the repaired program. The tests run all of them, as scripts
and as cells: the words are those that were said. What gloo says of the same program is there where
it differs, also recorded. The notebook [19](course/19-hang-gallery.md) has them as exercises.

"""
