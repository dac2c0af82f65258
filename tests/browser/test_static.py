"""Without widgets and without JavaScript (VS Code, GitHub, mail, paper) the stored pictures show.

nbconvert's page of a stored notebook is what such readers make of it: HTML and images.
"""

import re

import nbformat
import pytest
from browsing import ROOT
from nbconvert import HTMLExporter


@pytest.mark.parametrize("template", ["classic", "lab"])
@pytest.mark.parametrize("name", ["00-quickstart", "10-algorithms"])
def test_a_stored_notebook_shows_its_pictures(browser, tmp_path, name, template):
    stored = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4)
    pictures = sum(
        output.get("data", {}).get("text/html", "").count('class="teachdist"')
        for cell in stored.cells
        for output in cell.get("outputs", ())
    )
    assert pictures > 0
    body, _ = HTMLExporter(template_name=template).from_notebook_node(stored)
    body = re.sub(r"<script.*?</script>", "", body, flags=re.DOTALL)
    (tmp_path / "stored.html").write_text(body, encoding="utf-8")

    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((tmp_path / "stored.html").as_uri())
    shown = page.locator("img[src^='data:image/svg+xml']")
    assert shown.count() == pictures
    for number in range(pictures):
        box = shown.nth(number).bounding_box()
        assert box["width"] > 200
        assert box["height"] > 80
        assert shown.nth(number).get_attribute("alt")
    context.close()
