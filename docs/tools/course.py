"""The course: notebooks/*.ipynb as pages, with their stored outputs and with players.

A picture that `show` stored carries its scene (see pictures/svg.py), so the page plays what the
notebook showed. Cells with a tag get an anchor of that name, which the coverage table links to.
"""

import base64
import json
import re
import tomllib
from html import escape, unescape
from pathlib import Path

import nbformat
from nbconvert import MarkdownExporter

from teachdist.notebook.show import waiting

ROOT = Path(__file__).resolve().parents[2]
_IMAGE = re.compile(r'<img class="teachdist"[^>]*src="data:image/svg\+xml;base64,([^"]+)"[^>]*>')
_NBVAL = ("nbval-", "raises-exception")


def pages() -> dict[str, str]:
    """The pages of the course, and a first page that lists them."""
    books = sorted((ROOT / "notebooks").glob("*.ipynb"))
    found = {f"course/{book.stem}.md": page(book) for book in books}
    titles = {book.stem: title(found[f"course/{book.stem}.md"]) for book in books}
    found["course/index.md"] = index(titles)
    return found


def index(titles: dict[str, str]) -> str:
    """The first page: every notebook with its duration, what it needs and what it is about."""
    plans = plan()
    rows, total = [], 0
    for stem, name in titles.items():
        entry = plans[stem[:2]]
        total += entry["minutes"]
        needs = ", ".join(f"[{n}]({s}.md)" for n in entry["needs"] for s in titles if s[:2] == n)
        link = f"[{name}]({stem}.md)"
        rows.append(f"| {stem[:2]} | {link} | {entry['minutes']} | {needs} | {entry['about']} |")
    hours = round(total / 30) / 2
    return _INDEX.format(count=len(rows), hours=f"{hours:g}", rows="\n".join(rows))


def plan() -> dict[str, dict]:
    """docs/course.toml: number of a notebook -> minutes, needs, about."""
    return tomllib.loads((ROOT / "docs" / "course.toml").read_text("utf-8"))


def page(path) -> str:
    """One notebook as Markdown."""
    book = nbformat.read(path, as_version=4)
    for cell in book.cells:
        if cell.cell_type == "code":
            cell.outputs = [_shown(output) for output in cell.outputs]
        tags = [tag for tag in cell.metadata.get("tags", []) if not tag.startswith(_NBVAL)]
        anchors = "".join(f'<a id="{escape(tag)}"></a>' for tag in tags)
        if anchors and cell.cell_type == "markdown":
            cell.source = f"{anchors}\n\n{cell.source}"
        elif anchors:
            cell.metadata["anchors"] = anchors
    here = str(Path(__file__).parent)
    exporter = MarkdownExporter(extra_template_paths=[here], template_file="course.md.j2")
    exporter.register_filter("anchors", lambda cell: cell.metadata.get("anchors", ""))
    text, _ = exporter.from_notebook_node(book)
    text = text.replace("](../docs/", "](../").replace(".ipynb)", ".md)")
    return f"{text.rstrip()}\n\n{_source(path)}"


def title(text: str) -> str:
    """The first heading of a page."""
    named = re.search(r"^# (.+)$", text, flags=re.MULTILINE)
    return named[1] if named else "Untitled"


def _source(path):
    where = f"This page is `notebooks/{path.name}`: `make lab` opens it."
    return f'!!! note "Run it yourself"\n    {where}\n'


def _shown(output):
    """An output with a player in the place of a picture that carries its scenes."""
    html = output.get("data", {}).get("text/html")
    if html is None:
        return output
    html = "".join(html)
    stored = [base64.b64decode(image).decode() for image in _IMAGE.findall(html)]
    scenes = [json.loads(unescape(data[1])) for s in stored if (data := _METADATA.search(s))]
    if scenes and len(scenes) == len(stored):
        html = waiting(scenes, html)
    output["data"] = nbformat.NotebookNode({"text/html": html})
    return output


_METADATA = re.compile(r"<metadata>(.*?)</metadata>", re.DOTALL)
_INDEX = """# The course

Every page is a notebook that was run: what you see under a cell is what it printed, and the tests
run it again and compare. Read here, or open the notebooks with `make lab` (after `pip install`:
`teachdist course` copies them to a folder) and change them.

You need: Python, and PyTorch well enough to train a small model on one device. Nothing is assumed
about distributed computing, and no notebook needs a GPU; cells that would use one say what they
would show. A notebook's ranks are processes on your own machine.

The {count} notebooks take about {hours} hours if you run every cell and try the exercises, each 10
to 25 minutes. In a hurry: 00, 04, 10, 12. To debug trainings: 00, 04, 14, 18, 19.

| no. | notebook | minutes | after | about |
| ---: | --- | ---: | --- | --- |
{rows}
"""
