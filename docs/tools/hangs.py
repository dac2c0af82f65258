"""The hang gallery: examples/hangs/NN-name as a page of riddles with their answers.

A case is broken.py (its docstring asks the question), fixed.py, and hang.toml: title, ranks, why,
remedy, and a table for each backend that was tried with the words it said.
"""

import ast
import inspect
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples" / "hangs"


def pages() -> dict[str, str]:
    """The page of the gallery."""
    cases = sorted(path.parent for path in FOLDER.glob("*/hang.toml"))
    sections = [section(case) for case in cases]
    return {"hangs.md": _HEAD + "\n\n".join(sections or ["The gallery is being hung."]) + "\n"}


def section(case: Path) -> str:
    """One mistake: the riddle, and behind a click what teachdist says, why, and the remedy."""
    told = tomllib.loads((case / "hang.toml").read_text("utf-8"))
    broken = (case / "broken.py").read_text("utf-8")
    question = inspect.cleandoc(ast.get_docstring(ast.parse(broken)) or "").partition("\n")[0]
    answer = [
        *(_words(name, tried) for name, tried in told.items() if isinstance(tried, dict)),
        f"**Why.** {_one_line(told['why'])}",
        f"**Remedy.** {_one_line(told['remedy'])}",
        _code(case / "fixed.py"),
    ]
    if told.get("seen"):
        answer.append(f"Seen in {', '.join(_report(name) for name in told['seen'])}.")
    inside = "\n\n".join(answer).replace("\n", "\n    ").replace("\n    \n", "\n\n")
    return "\n\n".join(
        [
            f"## {told['title']} {{#{case.name}}}",
            f"{told['ranks']} ranks. {question}",
            _code(case / "broken.py"),
            f'??? success "What it says, why, and the remedy"\n\n    {inside}',
        ]
    )


def _words(backend, tried):
    """What a backend said, and on which ranks."""
    words = tried.get("says", "").strip()
    if not words:
        return f"On {backend} it works."
    where = f"ranks {', '.join(map(str, tried['on']))}" if "on" in tried else "the ranks"
    return f'```text title="{backend} says, on {where}"\n{words}\n```'


def _code(path):
    """A program without its docstring, which the page tells in its own way."""
    text = path.read_text("utf-8")
    first = ast.parse(text).body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        text = "\n".join(text.splitlines()[first.end_lineno :])
    return f'```python title="{path.name}"\n{text.strip()}\n```'


def _report(name):
    return name.replace("pt#", "pytorch/pytorch#")


def _one_line(text):
    return " ".join(text.split())


_HEAD = """---
hide: [navigation]
---
# The hang gallery

Mistakes that people really make, each as a riddle: a program that hangs or goes wrong. Find it,
then look at what teachdist says, and at the repaired program. The tests run all of them: the words
are those that were said.

"""
