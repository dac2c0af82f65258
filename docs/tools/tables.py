"""The coverage table and the page on where documentation and behaviour differ."""

import re
from collections import Counter
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
    counts = Counter(run_on(item) for item in items)
    parts = [
        _COVERAGE.format(
            items=len(items),
            placed=sum(bool(item["where"]) for item in items),
            run=counts[TORCH],
            gpu=counts[GPU],
            told=counts[TOLD],
            differing=len(differences(items)),
            torch=TORCH,
        )
    ]
    differing = differences(items)
    for section in dict.fromkeys(item["section"] for item in items):
        rows = [_row(item, differing) for item in items if item["section"] == section]
        parts.append(f"## {section}\n\n{_HEAD}")
        parts[-1] += "\n" + "\n".join(rows)
    return "\n\n".join(parts) + "\n"


def discrepancies() -> str:
    """All files of docs/discrepancies, one after the other."""
    files = sorted((ROOT / "docs" / "discrepancies").glob("*.md"))
    texts = [
        re.sub(r"^(#+ )", r"#\1", f.read_text("utf-8").strip(), flags=re.MULTILINE) for f in files
    ]
    text = "\n\n".join(texts or ["None has been written down yet."])
    return _DISCREPANCIES + _anchored(text, differences(documented.items())) + "\n"


def differences(items) -> set[str]:
    """The statements that a row of docs/discrepancies begins with."""
    known = {item["id"] for item in items}
    folder = ROOT / "docs" / "discrepancies"
    rows = "".join(
        row
        for file in folder.glob("*.md")
        for row in re.findall(r"^\| (`.*?) \|", file.read_text("utf-8"), flags=re.MULTILINE)
    )
    return known & set(re.findall(r"`([\w.]+)`", rows))


def _anchored(text, known):
    """The text with an anchor where a statement is first named at the beginning of a row."""
    for name in known:
        anchor = f'<a id="differs-{name}"></a>`{name}`'
        first = re.compile(rf"^(\| [^|\n]*?)`{re.escape(name)}`", re.MULTILINE)
        text = first.sub(rf"\1{anchor}", text, count=1)
    return text


def run_on(item) -> str:
    """On what an item's places were run: a torch version, no GPU yet, or nothing to run."""
    if not item["where"]:
        return "–"
    if any(not place.startswith(documented.MARKS) for place in item["where"]):
        return TORCH
    return GPU if any(place.startswith("gpu: ") for place in item["where"]) else TOLD


def _row(item, differing):
    says = (
        item["says"]
        .replace("|", "\\|")
        .replace("<", "&lt;")
        .replace("*", "\\*")
        .replace("_", "\\_")
    )
    where = "<br>".join(_place(place) for place in item["where"]) or "–"
    differs = f"[differs](discrepancies.md#differs-{item['id']})" * (item["id"] in differing)
    return f"| {says} | {item['kind']} | {where} | {run_on(item)} | {differs} |"


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


TORCH = "torch " + version("torch").split("+")[0]
GPU = "not yet seen on a GPU"
TOLD = "told"
_HEAD = """| statement | kind | shown in | run on | torch does |
| --- | --- | --- | --- | --- |"""
_COVERAGE = """# What is covered

[Two documents](sources.md) of torch.distributed, the API documentation and the guide to custom
backends, were read sentence by sentence: {items} statements. {placed} of them have a place here: a
cell of the course that asserts it or whose stored output shows it, a test, or a page.

- {run} are run, on {torch}, whenever the tests run. That is the version this page was made with;
  every week the course is executed against the newest release.
- {gpu} need a GPU to say anything, and are not yet seen on one.
- {told} are told: there is nothing to execute, or only other hardware could.
- In {differing} cases torch [does otherwise](discrepancies.md) than it says; the last column links
  to what it does, and what teachdist does.
"""
_DISCREPANCIES = """# Where documentation and behaviour differ

The documentation is followed where it can be; each case below has a test that notices when torch
changes.

"""
