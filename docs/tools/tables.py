"""The coverage table and the page on where documentation and behaviour differ."""

import re
from importlib.metadata import version
from pathlib import Path

import documented

ROOT = Path(__file__).resolve().parents[2]


def pages() -> dict[str, str]:
    """Both pages."""
    return {"coverage.md": coverage(), "discrepancies.md": discrepancies()}


def coverage() -> str:
    """What the documentation states, section by section, and where it is shown."""
    items = documented.items()
    placed = sum(bool(item["where"]) for item in items)
    told = sum(item["runnable"] == "read-only" for item in items)
    parts = [
        _COVERAGE.format(
            placed=placed, items=len(items), told=told, torch=version("torch").split("+")[0]
        )
    ]
    for section in dict.fromkeys(item["section"] for item in items):
        rows = [_row(item) for item in items if item["section"] == section]
        parts.append(f"## {section}\n\n| statement | kind | shown in |\n| --- | --- | --- |")
        parts[-1] += "\n" + "\n".join(rows)
    return "\n\n".join(parts) + "\n"


def discrepancies() -> str:
    """All files of docs/discrepancies, one after the other."""
    files = sorted((ROOT / "docs" / "discrepancies").glob("*.md"))
    texts = [
        re.sub(r"^(#+ )", r"#\1", f.read_text("utf-8").strip(), flags=re.MULTILINE) for f in files
    ]
    return _DISCREPANCIES + "\n\n".join(texts or ["None has been written down yet."]) + "\n"


def _row(item):
    says = (
        item["says"]
        .replace("|", "\\|")
        .replace("<", "&lt;")
        .replace("*", "\\*")
        .replace("_", "\\_")
    )
    where = "<br>".join(_place(place) for place in item["where"]) or "–"
    return f"| {says} | {item['kind']} | {where} |"


def _place(place: str) -> str:
    """A place as a link where the site has it, else as its path."""
    mark = next((mark for mark in documented.MARKS if place.startswith(mark)), "")
    path, _, anchor = place.removeprefix(mark).partition("#")
    text = f"`{place.removeprefix(mark)}`"
    if path.startswith("notebooks/"):
        text = f"[{Path(path).stem}](course/{Path(path).stem}.md#{anchor})"
    elif path.startswith("docs/discrepancies/"):
        text = f"[discrepancies](discrepancies.md#{anchor})"
    elif path.startswith("docs/"):
        text = f"[{Path(path).stem}]({path.removeprefix('docs/')}{'#' * bool(anchor)}{anchor})"
    return mark + text


_COVERAGE = """# What is covered

Two documents of torch.distributed, the API documentation and the guide to custom backends, were
read sentence by sentence: {items} statements. {placed} of them have a place here: a cell of the
course that asserts it or whose stored output shows it, or a test. {told} are told, not run (there
is nothing to execute). Run on torch {torch}. A place that begins with "gpu" needs a GPU to say
anything.
"""
_DISCREPANCIES = """# Where documentation and behaviour differ

The documentation is followed where it can be; each case below has a test that notices when torch
changes.

"""
