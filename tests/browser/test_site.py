"""The site in a browser: every page, on desk and phone, light and dark, without the outside."""

import html.parser
import json
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

import pytest
import yaml
from browsing import ROOT, SITE

pytestmark = pytest.mark.timeout(480)  # the first to come builds the site


AXE = "4.14.1"
PHONE = {"width": 360, "height": 740}
JUDGED = [
    "index.html",
    "backends.html",
    "coverage.html",
    "course/index.html",
    "algorithms/broadcast.html",
    "teach.html",
    "playground.html",
    "troubleshooting.html",
]


def pages():
    found = [p.relative_to(SITE).as_posix() for p in sorted(SITE.rglob("*.html"))]
    return [name for name in found if name != "404.html"]


def test_every_page_is_quiet_and_fits_a_phone(visit):
    one = visit("index.html", viewport=PHONE)
    too_wide = []
    for name in pages():
        one.page.goto(one.address + name)
        width = one.page.evaluate("document.documentElement.scrollWidth")
        if width > PHONE["width"]:
            too_wide.append(f"{name}: {width}")
    assert not too_wide
    assert len(pages()) > 20


class Links(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.links, self.anchors = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in ("href", "src") and value:
                self.links.append(value)
            if name == "id" or (tag == "a" and name == "name"):
                self.anchors.add(value)


def test_every_link_leads_somewhere(site):
    found = {name: Links((SITE / name).read_text("utf-8")) for name in pages()}
    broken = []
    for name, page in found.items():
        for link in page.links:
            target, anchor = urldefrag(urljoin(site + name, link))
            if not target.startswith(site):
                continue
            path = unquote(urlsplit(target).path).lstrip("/") or "index.html"
            path += "index.html" if path.endswith("/") else ""
            if not (SITE / path).is_file():
                broken.append(f"{name}: {link}")
            elif anchor and path in found and unquote(anchor) not in found[path].anchors:
                broken.append(f"{name}: {link} (no such anchor)")
    assert not broken


def test_no_link_of_ours_leads_out_of_the_site_unseen(site):
    """Scripts, styles and pictures come from the site; links may lead out, loads may not."""
    loads = []
    for name in pages():
        text = (SITE / name).read_text("utf-8")
        loads += [
            f"{name}: {part}" for part in ('src="http', 'href="https://fonts') if part in text
        ]
    assert not loads


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_fault(visit, scheme):
    from npm import NotFetchedError, npm

    try:
        axe = (npm("axe-core", AXE) / "axe.min.js").read_text("utf-8")
    except NotFetchedError as error:
        pytest.skip(str(error))
    one = visit("index.html", color_scheme=scheme, reduced_motion="reduce")
    serious = []
    for name in JUDGED:
        one.page.goto(one.address + name)
        one.page.evaluate(axe)
        found = one.page.evaluate("axe.run({resultTypes: ['violations']})")["violations"]
        for fault in found:
            if fault["impact"] in ("serious", "critical"):
                where = [node["html"][:120] for node in fault["nodes"][:3]]
                serious.append(f"{name}: {fault['id']}: {fault['help']}: {where}")
    assert not serious, "\n".join(serious)


def test_search_finds_without_the_outside(visit):
    one = visit("index.html", viewport={"width": 1280, "height": 800})
    assert "algorithms/" in search(one.page, "binomial")


def search(page, words):
    """The address of the first result; the search is closed again."""
    page.click(".md-search__input")
    page.keyboard.type(words)
    page.wait_for_selector(".md-search-result__link")
    found = page.get_attribute(".md-search-result__link", "href")
    page.keyboard.press("Escape")
    return found


def test_a_page_becomes_slides_and_back(visit):
    one = visit("teach.html")
    one.page.click("#td-slides-start")
    count = one.page.text_content(".td-slide-count")
    assert count.startswith("1 of ")
    one.page.keyboard.press("ArrowRight")
    assert one.page.text_content(".td-slide-count").startswith("2 of ")
    shown = one.page.locator("h2:visible")
    assert shown.count() == 1
    one.page.keyboard.press("Escape")
    assert one.page.locator("h2:visible").count() > 3


def test_it_opens_from_a_memory_stick(visit):
    desk = {"width": 1280, "height": 800}
    one = visit("index.html", address=SITE.as_uri() + "/", viewport=desk, reduced_motion="reduce")
    one.forgiven = "search"  # browsers let no page read a file: search needs a server
    one.page.get_by_role("button", name="One round on").first.click()
    assert float(one.page.locator(".player").first.get_attribute("data-at")) >= 1
    one.page.click("text=Take the course")
    assert one.page.url.endswith("course/index.html")


def test_the_scenes_on_the_pages_are_those_of_the_catalogue(site):
    from teachdist.pictures import scene

    text = (SITE / "index.html").read_text("utf-8")

    class Scenes(html.parser.HTMLParser):
        found = ()

        def handle_starttag(self, tag, attributes):
            given = dict(attributes)
            if "data-scenes" in given:
                self.found = (*self.found, json.loads(given["data-scenes"]))

    reader = Scenes()
    reader.feed(text)
    assert reader.found[0] == [json.loads(json.dumps(scene("ring", "all_reduce", 4)))]


def test_the_same_pages_build_with_zensical(site, tmp_path):
    config = yaml.unsafe_load((ROOT / "mkdocs.yml").read_text("utf-8"))  # it names functions
    assert config["strict"]
    config.update(docs_dir="docs", site_dir="site")  # it wants both inside the project
    shutil.copytree(ROOT / "build" / "docs", tmp_path / "docs")
    (tmp_path / "mkdocs.yml").write_text(yaml.safe_dump(config, sort_keys=False), "utf-8")
    command = Path(sys.executable).with_name("zensical")
    built = subprocess.run(
        [command, "build"], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert built.returncode == 0, built.stdout + built.stderr
    ours = {path.relative_to(SITE) for path in SITE.rglob("*.html")}
    assert ours <= {
        path.relative_to(tmp_path / "site") for path in tmp_path.rglob("site/**/*.html")
    }
