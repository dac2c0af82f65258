"""Stored notebooks are executed, and what they show does not change from run to run.

nbval compares outputs only where the notebook has some, so a notebook stripped of its outputs
passes it trivially. And what holds a time, a port, an address or a float with more digits than
are stable fails on another day. The rules:

- every code cell has an execution count, from 1 without gaps, and some cell has an output;
- no output shows a time, a date, a port, an address in memory, a path of this machine;
- no output shows a float with more than six significant digits.

A cell tagged `nbval-ignore-output` may show anything; one tagged `computed-times` may show times
(a cost model's, which are the same at every run). Tracebacks are not compared by nbval, so of
those only paths are looked at.
"""

import base64
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").rglob("*.ipynb"))
SIGNIFICANT_DIGITS = 6

FORBIDDEN = {
    "a time": re.compile(r"\b\d+(\.\d+)?\s?(ns|us|µs|μs|ms|s|sec|secs|seconds?|min|minutes?)\b"),
    "a time of day": re.compile(r"\b\d{1,2}:\d{2}:\d{2}\b"),
    "a date": re.compile(r"\b\d{4}-\d{2}-\d{2}\b"),
    "a port": re.compile(r"(127\.0\.0\.1|localhost|0\.0\.0\.0|\[::1\]):\d+|\bport[ =]\d+"),
    "an address": re.compile(r"\b0x[0-9a-fA-F]{4,}\b"),
    "a process id": re.compile(r"\bpid[ =:]+\d+", re.IGNORECASE),
}
PATH = re.compile(r"(?<![\w.])/(home|root|tmp|work|Users|usr|opt|var|private)/\S*")
FLOAT = re.compile(r"(?<![\w.])-?(\d+)\.(\d+)(?:[eE][+-]?\d+)?(?![\w.]*\d\.)")
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


def complaints(notebook):
    """Everything that is wrong with a notebook (as JSON), a line each."""
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    cells = [cell for cell in cells if "".join(cell["source"]).strip()]
    found = list(_not_executed(cells))
    for number, cell in enumerate(cells, 1):
        tags = cell["metadata"].get("tags", [])
        for output in cell["outputs"]:
            found += [f"code cell {number} shows {what}" for what in _unstable(output, tags)]
    return found


def _not_executed(cells):
    if not any(cell["outputs"] for cell in cells):
        yield "it has no outputs: execute it (python -m teachdist.notebook.execute)"
    for number, cell in enumerate(cells, 1):
        if cell["execution_count"] != number:
            yield f"code cell {number} was executed as {cell['execution_count']}"


def _unstable(output, tags):
    text = text_of(output)
    if found := PATH.search(text):
        yield f"a path: {found[0]}"
    if "nbval-ignore-output" in tags or output["output_type"] == "error":
        return
    for what, pattern in FORBIDDEN.items():
        if what == "a time" and "computed-times" in tags:
            continue
        if found := pattern.search(text):
            yield f"{what}: {found[0]}"
    for found in FLOAT.finditer(text):
        if significant(found) > SIGNIFICANT_DIGITS:
            yield f"a float with more than {SIGNIFICANT_DIGITS} significant digits: {found[0]}"


def significant(found):
    """How many significant digits a match of FLOAT shows; zeros at the end do not count."""
    return len((found[1] + found[2]).lstrip("0").rstrip("0"))


def text_of(output):
    """What a reader sees of an output as text: no pictures."""
    if output["output_type"] == "stream":
        return "".join(output["text"])
    if output["output_type"] == "error":
        return _ANSI.sub("", "\n".join([output["ename"], output["evalue"], *output["traceback"]]))
    shown = [
        "".join(text)
        for kind, text in output["data"].items()
        if kind in ("text/plain", "text/html", "text/markdown")
    ]
    return re.sub(
        r"<svg.*?</svg>|data:[\w/+;=-]+,[^\"')\s]*|style=\"[^\"]*\"",
        "",
        "\n".join(shown),
        flags=re.DOTALL,
    )


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored(path):
    assert complaints(json.loads(path.read_text(encoding="utf-8"))) == []


def notebook(*cells):
    return {"cells": [{"cell_type": "markdown", "metadata": {}, "source": "hi"}, *cells]}


def code(text="print(1)", count=1, outputs=None, tags=()):
    if outputs is None:
        outputs = [{"output_type": "stream", "name": "stdout", "text": ["1\n"]}]
    return {
        "cell_type": "code",
        "metadata": {"tags": list(tags)},
        "source": [text],
        "execution_count": count,
        "outputs": outputs,
    }


def printed(text, **more):
    return code(outputs=[{"output_type": "stream", "name": "stdout", "text": [text]}], **more)


def shown(**data):
    data = {kind.replace("_", "/"): text for kind, text in data.items()}
    return code(outputs=[{"output_type": "display_data", "data": data, "metadata": {}}])


def test_a_good_notebook_passes():
    assert complaints(notebook(code(), code(count=2, outputs=[]), code(text=" ", count=None))) == []


@pytest.mark.parametrize(
    ("cells", "complaint"),
    [
        ([code(outputs=[])], "no outputs"),
        ([code(count=None)], "cell 1 was executed as None"),
        ([code(), code(count=3)], "cell 2 was executed as 3"),
    ],
)
def test_stripped_or_half_executed_notebooks_are_refused(cells, complaint):
    assert complaint in "\n".join(complaints(notebook(*cells)))


@pytest.mark.parametrize(
    "text",
    [
        "took 3.2 s",
        "12 ms per step",
        "loss after 1 minute",
        "at 12:30:01",
        "on 2024-05-01",
        "listening on 127.0.0.1:4711",
        "port 29500",
        "<object at 0x7f3a12cd>",
        "pid 1234",
        "0.12345678",
        "-1234.5678",
        "1.2345678e-05",
        "wrote /tmp/x/y",
    ],
)
def test_unstable_outputs_are_refused(text):
    assert len(complaints(notebook(printed(text)))) == 1
    assert len(complaints(notebook(shown(text_plain=text)))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "tensor([6., 10.])",
        "0.123456",
        "1234.50000",
        "2.14.1.3",
        "3 ranks",
        "a/b/c",
        "cell:1",
        "12 steps",
    ],
)
def test_stable_outputs_pass(text):
    assert complaints(notebook(printed(text))) == []


def test_pictures_are_not_text():
    html = f'<img src="data:image/svg+xml;base64,{base64.b64encode(b"1.23456789 s").decode()}"/>'
    assert complaints(notebook(shown(text_html=html + "<svg x='1.23456789'>3 s</svg>"))) == []
    assert complaints(notebook(shown(image_png="12:30:01"))) == []


def test_what_tags_allow():
    assert complaints(notebook(printed("3 s at 127.0.0.1:1", tags=["nbval-ignore-output"]))) == []
    assert complaints(notebook(printed("3.5 ms", tags=["computed-times"]))) == []
    assert complaints(notebook(printed("port 5", tags=["computed-times"]))) != []


def test_of_a_traceback_only_paths_count():
    error = {"output_type": "error", "ename": "E", "evalue": "3 s", "traceback": ["0x7f3a12cd"]}
    assert complaints(notebook(code(outputs=[error]))) == []
    error["traceback"] = ["\x1b[32mFile /home/x.py:3\x1b[0m"]
    assert complaints(notebook(code(outputs=[error]))) == ["code cell 1 shows a path: /home/x.py:3"]
