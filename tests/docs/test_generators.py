"""The generators of pages: what goes in comes out, as Markdown that mkdocs can read."""

import base64
import html
import json
import re

import course
import documented
import hangs
import nbformat
import players
import pytest
import reference
import tables
import wire as pages_on_the_wire

from teachdist.notebook import show


@pytest.fixture
def notebook(tmp_path):
    shown = show("ring", "all_reduce", 3)
    outputs = [
        nbformat.v4.new_output("stream", text="\x1b[31mred\x1b[0m and plain\n"),
        nbformat.v4.new_output("display_data", data=shown._repr_mimebundle_()),
    ]
    cells = [
        nbformat.v4.new_markdown_cell("# A title\n\nSee [the next](02-next.ipynb)."),
        nbformat.v4.new_code_cell(
            "%%ranks\nprint(1)", outputs=outputs, metadata={"tags": ["a.tag", "nbval-skip"]}
        ),
    ]
    path = tmp_path / "01-some.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    return path


def test_a_notebook_keeps_code_outputs_and_tags(notebook):
    page = course.page(notebook)
    assert course.title(page) == "A title"
    assert "```python\n%%ranks\nprint(1)\n```" in page
    assert "red and plain" in page
    assert "\x1b" not in page
    assert '<a id="a.tag"></a>' in page
    assert "nbval" not in page
    assert "[the next](02-next.md)" in page


def test_a_stored_picture_becomes_a_player_of_the_same_scene(notebook):
    (data,) = re.findall(r'data-scenes="([^"]+)"', course.page(notebook))
    expected = json.loads(json.dumps(show("ring", "all_reduce", 3).scenes))
    assert json.loads(html.unescape(data)) == expected


def test_a_picture_without_scene_stays_a_picture():
    svg = base64.b64encode(b"<svg/>").decode()
    image = f'<img class="teachdist" src="data:image/svg+xml;base64,{svg}">'
    output = nbformat.v4.new_output("display_data", data={"text/html": image})
    assert course._shown(output)["data"]["text/html"] == image


def test_comments_in_pages_become_players():
    page = players.fill('before\n\n<!-- play: "ring", "all_reduce", ranks=3 -->\n\nafter\n')
    assert 'data-autoplay="yes"' in page
    assert page.startswith("before\n\n<div")
    assert page.endswith("</div>\n\nafter\n")
    with pytest.raises(ValueError, match="malformed"):
        players.fill('<!-- show: __import__("os") -->')


def test_a_case_of_the_gallery(tmp_path):
    (tmp_path / "broken.py").write_text('"""Why?\n\nMore."""\n\nimport torch\n')
    (tmp_path / "fixed.py").write_text('"""So."""\nprint()\n')
    (tmp_path / "hang.toml").write_text(
        'title = "A case"\nranks = 3\nwhy = """\nBecause\nof it.\n"""\nremedy = "Do."\n'
        'seen = ["pt#1"]\n[teachdist]\nverdict = "error"\non = [0, 2]\nsays = "Words."\n'
    )
    page = hangs.section(tmp_path)
    assert page.startswith(f"## A case {{#{tmp_path.name}}}\n\n3 ranks. Why?")
    assert '```python title="broken.py"\nimport torch\n```' in page
    assert '    ```text title="teachdist says, on ranks 0, 2"\n    Words.\n    ```' in page
    assert "    **Why.** Because of it." in page
    assert "    Seen in pytorch/pytorch#1." in page


def test_the_page_on_the_wire_is_the_table_of_the_code():
    from teachdist.stores.tcp_store import wire

    page = pages_on_the_wire.fill((documented.ROOT / "docs" / "stores-wire.md").read_text("utf-8"))
    assert "<!--" not in page
    for op in wire.OPS:
        assert f"| {op.code} | {op.name} |" in page
    assert "| SET b'/color', b'red' | `01 06 00 00 00 00 00 00 00 2f 63" in page


def test_every_public_name_is_in_the_reference():
    import teachdist

    pages = reference.pages()
    functions = [n for n in teachdist.__all__ if not n.startswith("_")]
    missing = [name for name in functions if f"[`{name}`]" not in pages["api/index.md"]]
    assert not missing


def test_places_become_links_where_the_site_has_them():
    assert tables._place("notebooks/03-x.ipynb#tag") == "[03-x](course/03-x.md#tag)"
    assert tables._place("docs/design.md#laws") == "[design](design.md#laws)"
    assert tables._place("docs/discrepancies/x.md#y") == "[discrepancies](discrepancies.md#y)"
    assert tables._place("gpu: tests/a.py::test_b") == "gpu: `tests/a.py::test_b`"


def test_the_coverage_table_has_every_statement():
    page = tables.coverage()
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    sections = page.count("| statement |")
    assert len(rows) - 2 * sections == len(documented.items())


def test_the_coverage_table_says_on_what_a_statement_was_run():
    assert (
        tables.run_on({"where": ["tests/a.py::test_b", "gpu: tests/a.py::test_c"]}) == tables.TORCH
    )
    assert tables.run_on({"where": ["gpu: tests/a.py::test_c"]}) == tables.GPU
    assert tables.run_on({"where": ["read only: docs/a.md#b"]}) == tables.TOLD
    assert tables.run_on({"where": []}) == "–"
    assert re.fullmatch(r"torch \d+\.\d+\.\d+", tables.TORCH)


def test_the_coverage_table_links_to_what_torch_does_otherwise():
    """Each link leads to an anchor of the other page, one for each statement."""
    links = re.findall(r"discrepancies\.md#(differs-[\w.]+)", tables.coverage())
    anchors = re.findall(r'<a id="(differs-[\w.]+)">', tables.discrepancies())
    assert sorted(links) == sorted(anchors)
    assert {"differs-launch.use_env", "differs-mesh.get_coordinate"} <= set(links)


def test_the_course_has_a_plan_for_each_notebook():
    """Minutes, and notebooks to read before, which come before it in the course as well."""
    plans = course.plan()
    for book in (course.ROOT / "notebooks").glob("*.ipynb"):
        entry = plans[book.name[:2]]
        assert 10 <= entry["minutes"] <= 25
        assert all(number < book.name[:2] and number in plans for number in entry["needs"])
        assert entry["about"]


def test_the_first_page_of_the_course_tells_minutes_and_prerequisites():
    page = course.index({"00-quickstart": "Quickstart", "01-processes": "Processes"})
    assert "| 01 | [Processes](01-processes.md) | 15 | [00](00-quickstart.md) |" in page
    assert "The 2 notebooks take about 0.5 hours" in page
