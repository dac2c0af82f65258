"""What the files say of themselves: docstrings that stand alone, and names of files that exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "teachdist").rglob("*.py"))
LEANING = re.compile(r"the same\b|ditto\b|see |as `|like `|as for ", re.IGNORECASE)
NAMED = re.compile(r"[\w/]*\w\.py\b")
EXAMPLES = {"FILE.py", "a.py", "data.py"}  # files of a user, in examples of messages
THEIRS = {"_mesh_layout.py", "bdb.py", "contextlib.py", "pdb.py", "pydevd.py"}


def docstrings(path):
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
            text = ast.get_docstring(node)
            if text:
                yield text


@pytest.mark.parametrize("leans", ["The same, sorted.", "As `flat`, but faster.", "See x."])
def test_a_docstring_that_leans_on_another_is_known(leans):
    assert LEANING.match(leans)


def test_docstrings_stand_alone():
    leaning = [
        f"{path.relative_to(ROOT)}: {text.splitlines()[0]}"
        for path in FILES
        for text in docstrings(path)
        if LEANING.match(text)
    ]
    assert not leaning


def test_files_that_are_named_exist():
    there = {path.relative_to(ROOT).as_posix() for path in FILES}
    there |= {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("*.py")}
    there |= {path.relative_to(ROOT).as_posix() for path in (ROOT / "examples").rglob("*.py")}
    gone = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in FILES
        for name in NAMED.findall(path.read_text("utf-8"))
        if name.rpartition("/")[2] not in EXAMPLES | THEIRS
        and not any(f"/{file}".endswith(f"/{name}") for file in there)
    ]
    assert not gone
