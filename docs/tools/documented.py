"""Which statement of the documentation is shown where, and whether that place exists.

`docs/documented.toml` lists the statements; the key `where` of an item names its place or places.
Until they are folded in (see place.py), files `docs/where/*.toml` name places too: a table
`[where]` of id = place or list of places. The kinds of places:

    notebooks/03-x.ipynb#tag        a code cell with that tag, which asserts or has a stored output
    tests/x/test_y.py::test_z       a test (a class before it and a parameter after it may be given)
    docs/page.md#anchor             a heading of a page of the site
    gpu: tests/x/test_y.py::test_z  a test or a cell that needs a GPU to say anything
    read only: docs/page.md#anchor  told, not run: there is nothing to execute
"""

import ast
import functools
import json
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTED = ROOT / "docs" / "documented.toml"
MARKS = ("gpu: ", "read only: ")


def items() -> list[dict]:
    """All items, each with a list of places under "where"."""
    found = tomllib.loads(DOCUMENTED.read_text("utf-8"))["item"]
    extra = pending()
    for item in found:
        own = item.get("where", [])
        own = [own] if isinstance(own, str) else own
        item["where"] = list(dict.fromkeys([*own, *extra.get(item["id"], [])]))
    return found


def pending() -> dict[str, list[str]]:
    """The places in docs/where/*.toml: id -> places."""
    found: dict[str, list[str]] = {}
    for file in sorted((ROOT / "docs" / "where").glob("*.toml")):
        for key, places in tomllib.loads(file.read_text("utf-8")).get("where", {}).items():
            found.setdefault(key, []).extend([places] if isinstance(places, str) else places)
    return found


def fault(place: str) -> str | None:
    """What is wrong with a place, in words; None if it exists and can fail."""
    told = place.startswith(MARKS[1])
    for mark in MARKS:
        place = place.removeprefix(mark)
    path, separator, inside = re.fullmatch(r"([^#:]+)(#|::)?(.*)", place).groups()
    file = ROOT / path
    if not file.is_file():
        return f"there is no file {path}"
    if path.endswith(".ipynb"):
        return _cell_fault(file, inside, told)
    if path.endswith(".py") and separator == "::":
        name = inside.partition("[")[0]
        return None if name in _tests(file) else f"{path} has no test {name}"
    if path.endswith(".md"):
        if not inside:
            return None
        return None if inside in anchors(file) else f"{path} has no heading #{inside}"
    return "expected notebooks/x.ipynb#tag, tests/x.py::test or docs/x.md#anchor"


def _cell_fault(file, tag, told):
    cells = [cell for cell in _cells(file) if tag in cell["metadata"].get("tags", [])]
    if not cells:
        return f"{file.name} has no cell with the tag {tag!r}"
    if told or any(_can_fail(cell) for cell in cells):
        return None
    return f"the cell {tag!r} of {file.name} neither asserts nor has an output that is compared"


def _can_fail(cell) -> bool:
    """Whether running the cell again could disagree with what is stored."""
    if cell["cell_type"] != "code":
        return False
    if re.search(r"\bassert\b", "".join(cell["source"])):
        return True
    return bool(cell["outputs"]) and "nbval-ignore-output" not in cell["metadata"].get("tags", [])


@functools.cache
def _cells(file):
    return json.loads(file.read_text("utf-8"))["cells"]


@functools.cache
def _tests(file) -> set[str]:
    """Names of the tests in a file, those of classes as "Class::test"."""
    found = set()
    for node in ast.parse(file.read_text("utf-8")).body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            inner = [n.name for n in node.body if isinstance(n, ast.FunctionDef)]
            found.update(f"{node.name}::{name}" for name in inner)
    return {name for name in found if name.rpartition("::")[2].startswith("test")}


@functools.cache
def anchors(file) -> set[str]:
    """The anchors of a page: its headings as the site names them, and explicit ids."""
    text = re.sub(r"^```.*?^```", "", file.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    found = set(re.findall(r'(?:\{[^}\n]*#|id=")([\w.-]+)', text))
    for heading in re.findall(r"^#+ +(.+?)(?: *\{[^}]*\})? *$", text, flags=re.MULTILINE):
        plain = re.sub(r"[^\w\s-]", "", heading).strip().lower()
        found.add(re.sub(r"[-\s]+", "-", plain))
    return found
