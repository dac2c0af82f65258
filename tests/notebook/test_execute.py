import json

import pytest

from teachdist.notebook import execute


def write(path, *sources, tags=()):
    cells = [
        {
            "cell_type": "code",
            "id": "a1b2c3d4",
            "metadata": {"tags": list(tags), "execution": {"iopub.execute_input": "now"}},
            "execution_count": None,
            "outputs": [],
            "source": source,
        }
        for source in sources
    ]
    notebook = {"cells": cells, "metadata": {"x": 1}, "nbformat": 4, "nbformat_minor": 5}
    path.write_text(json.dumps(notebook))
    return path


def test_two_executions_give_the_same_bytes(tmp_path, capsys):
    path = write(tmp_path / "a.ipynb", "import sys\nprint(1)\nsys.stdout.flush()\nprint(2)", "3")
    assert execute.main([str(path)]) == 0
    first = path.read_bytes()
    assert execute.main(["--check", str(path)]) == 0
    assert path.read_bytes() == first
    notebook = json.loads(first)
    cells = notebook["cells"]
    assert [cell["id"] for cell in cells] == ["cell-00", "cell-01"]
    assert [cell["execution_count"] for cell in cells] == [1, 2]
    assert cells[0]["outputs"] == [
        {"name": "stdout", "output_type": "stream", "text": ["1\n", "2\n"]}
    ]
    assert cells[0]["metadata"] == {"tags": []}
    assert "version" not in notebook["metadata"]["language_info"]
    path.write_bytes(first.replace(b'"2\\n"', b'"4\\n"'))
    assert execute.main(["--check", str(path)]) == 1
    assert "other outputs" in capsys.readouterr().err


@pytest.mark.parametrize(("tags", "status"), [((), 1), (("raises-exception",), 0)])
def test_a_failing_cell_leaves_the_file_alone(tmp_path, capsys, tags, status):
    path = write(tmp_path / "a.ipynb", "1 / 0", tags=tags)
    before = path.read_bytes()
    assert execute.main([str(path)]) == status
    assert (path.read_bytes() == before) == bool(status)
    assert ("ZeroDivisionError" in capsys.readouterr().err) == bool(status)


def test_widgets_are_dropped_where_there_is_a_picture():
    widget = "application/vnd.jupyter.widget-view+json"
    both = {"output_type": "display_data", "data": {widget: {}, "text/html": "<img>"}}
    assert execute._static(both)["data"] == {"text/html": "<img>"}
    alone = {"output_type": "display_data", "data": {widget: {}}}
    assert execute._static(alone)["data"] == {widget: {}}
