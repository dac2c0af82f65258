"""Execute notebooks and store their outputs, so that a second execution gives the same bytes.

    python -m teachdist.notebook.execute notebooks/*.ipynb
    python -m teachdist.notebook.execute --check notebooks/*.ipynb    # write nothing, only compare

What varies from run to run is not stored: times of execution, widget state, the Python's version,
how a stream was cut into messages, and live output. Cells without an id get one by position. A
cell that fails leaves the file as it was, unless it is tagged ``raises-exception``.
"""

import argparse
import contextlib
import json
import os
import sys
import tempfile
from pathlib import Path

CELL_DEADLINE = 180  # seconds
_KEPT_OF_CELL = ("tags", "jupyter", "slideshow", "editable", "deletable")
_WIDGET = "application/vnd.jupyter.widget-view+json"
_METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python", "pygments_lexer": "ipython3"},
}


def execute(path):
    """Execute the notebook in its own directory; the new text of the file.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell failed; its text shows the cell.
    """
    import nbformat
    from nbclient import NotebookClient
    from traitlets.config import Config

    path = Path(path)
    stored = _with_ids(json.loads(path.read_text(encoding="utf-8")))
    notebook = nbformat.reads(json.dumps(stored), as_version=4)
    # Nothing listens on a port: kernel and client meet in files of a directory of our own, named
    # by an absolute path, since the two run in different directories.
    with tempfile.TemporaryDirectory(prefix="teachdist-kernel-") as meeting, _recorded():
        kernel = {"transport": "ipc", "ip": os.path.join(meeting, "kernel")}
        NotebookClient(
            notebook,
            timeout=CELL_DEADLINE,
            startup_timeout=CELL_DEADLINE,
            config=Config(KernelManager=kernel),
            kernel_name="python3",
            record_timing=False,
            store_widget_state=False,
            resources={"metadata": {"path": str(path.parent)}},
        ).execute()
    clean(notebook)
    return nbformat.writes(notebook) + "\n"


@contextlib.contextmanager
def _recorded():
    """An environment, which the kernel inherits, for outputs that are kept and compared."""
    before = dict(os.environ)
    # Hints of waiting ranks come only on a slow machine, and hold times.
    os.environ.update(TEACHDIST_LIVE="0", TEACHDIST_LOG="error", TORCH_CPP_LOG_LEVEL="ERROR")
    os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def clean(notebook):
    """Take out of an executed notebook what is not the same at the next execution."""
    notebook.metadata = type(notebook.metadata)(_METADATA)
    for cell in notebook.cells:
        cell.metadata = type(cell.metadata)(
            {key: cell.metadata[key] for key in _KEPT_OF_CELL if key in cell.metadata}
        )
        if cell.cell_type == "code":
            cell.outputs = _joined([_static(output) for output in cell.outputs])


def _with_ids(notebook):
    """The notebook (as JSON) with an id for each cell that does not depend on chance."""
    notebook.update(nbformat=4, nbformat_minor=5)
    for number, cell in enumerate(notebook["cells"]):
        if _looks_random(cell.get("id", "")):
            cell["id"] = f"cell-{number:02}"
    return notebook


def _looks_random(name):
    """Whether an id is one that an editor drew (eight hexadecimal digits, or a UUID), or none."""
    bare = name.replace("-", "")
    return len(bare) in (0, 8, 32) and all(letter in "0123456789abcdef" for letter in bare)


def _static(output):
    """An output without its widget, if it has another form as well."""
    data = output.get("data", {})
    if _WIDGET in data and len(data) > 1:
        del data[_WIDGET]
    return output


def _joined(outputs):
    """Outputs where texts to the same stream that follow each other are one."""
    joined = []
    for output in outputs:
        last = joined[-1] if joined else {}
        if output.output_type == "stream" == last.get("output_type") and last.name == output.name:
            last.text += output.text
        else:
            joined.append(output)
    return joined


def main(arguments=None):
    """Execute what the command line names; the exit status."""
    from nbclient.exceptions import CellExecutionError, CellTimeoutError

    parser = argparse.ArgumentParser(prog="python -m teachdist.notebook.execute")
    parser.add_argument("notebooks", nargs="+", type=Path)
    parser.add_argument("--check", action="store_true", help="compare with what is stored")
    given = parser.parse_args(arguments)
    status = 0
    for path in given.notebooks:
        try:
            text = execute(path)
        except (CellExecutionError, CellTimeoutError) as error:
            print(f"{path}: {error}", file=sys.stderr)  # noqa: T201
            status = 1
            continue
        same = text == path.read_text(encoding="utf-8")
        if given.check and not same:
            print(f"{path}: another execution gives other outputs", file=sys.stderr)  # noqa: T201
            status = 1
        elif not given.check:
            path.write_text(text, encoding="utf-8")
            print(f"{path}: {'unchanged' if same else 'executed'}")  # noqa: T201
    return status


if __name__ == "__main__":
    sys.exit(main())
