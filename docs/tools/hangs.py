"""The hang gallery: examples/hangs/NN-name, broken, what it says, and fixed."""

import ast
import inspect
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples" / "hangs"


def pages() -> dict[str, str]:
    """The page of the gallery."""
    cases = sorted(path for path in FOLDER.glob("*") if (path / "broken.py").is_file())
    sections = [section(case) for case in cases]
    return {"hangs.md": _HEAD + "\n\n".join(sections or ["The gallery is being hung."]) + "\n"}


def section(case: Path) -> str:
    """One mistake: its story (the docstring of broken.py), both programs, the recorded words."""
    broken = (case / "broken.py").read_text("utf-8")
    story = inspect.cleandoc(ast.get_docstring(ast.parse(broken)) or case.name)
    title, _, rest = story.partition("\n")
    parts = [f"## {title.rstrip('.')}", rest.strip(), _fence("python", case / "broken.py")]
    parts += [_fence("text", words) for words in sorted(case.glob("*.txt"))]
    if (case / "fixed.py").is_file():
        parts.append(_fence("python", case / "fixed.py"))
    return "\n\n".join(part for part in parts if part)


def _fence(language, path):
    return f'```{language} title="{path.name}"\n{path.read_text("utf-8").rstrip()}\n```'


_HEAD = """# The hang gallery

Mistakes that people really make, each as a program that hangs or goes wrong on other backends, the
sentence that teachdist says, and the repaired program. The tests run all of them.

"""
