"""Build the site: `python docs/build.py` (or `make docs`); the result is in site/.

    docs/*.md, docs/assets   ->  build/docs            `<!-- show: ... -->` become players
    notebooks/*.ipynb        ->  build/docs/course     tools/course.py
    the catalogue            ->  build/docs/algorithms tools/algorithms.py
    the public names         ->  build/docs/api        tools/reference.py
    examples/hangs           ->  build/docs/hangs.md   tools/hangs.py
    documented.toml          ->  build/docs/coverage.md, discrepancies.md  tools/tables.py
    docs/benchmarks.json     ->  the table of benchmarks.md tools/benchmarks.py
    npm's pyodide            ->  build/docs/assets/pyodide  tools/engine.py

and then mkdocs, strictly. Without a connection everything is built but what comes from npm (a copy
from an earlier build is used again); the playground's page then says that it isn't there.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs" / "tools")]

import algorithms  # noqa: E402
import benchmarks  # noqa: E402
import course  # noqa: E402
import engine  # noqa: E402
import hangs  # noqa: E402
import players  # noqa: E402
import reference  # noqa: E402
import tables  # noqa: E402
import wire  # noqa: E402

from teachdist.notebook.show import script  # noqa: E402

BUILD = ROOT / "build"
PAGES = BUILD / "docs"
ASSETS = ("*.css", "*.js", "*.svg", "*.py")


def main() -> int:
    """Write all pages, then build the site; mkdocs' exit status."""
    shutil.rmtree(PAGES, ignore_errors=True)
    (PAGES / "assets").mkdir(parents=True)
    for page in (ROOT / "docs").glob("*.md"):
        write(page.name, benchmarks.fill(wire.fill(players.fill(page.read_text("utf-8")))))
    for pattern in ASSETS:
        for asset in (ROOT / "docs" / "assets").glob(pattern):
            shutil.copy(asset, PAGES / "assets")
    write("assets/player.js", script())
    write("contributing.md", (ROOT / "CONTRIBUTING.md").read_text("utf-8"))
    for part in (course, algorithms, reference, hangs, tables):
        for name, text in part.pages().items():
            write(name, text)
    if fault := engine.vendor(PAGES / "assets"):
        sys.stderr.write(f"docs: the playground is left out: {fault}\n")
        page = (PAGES / "playground.md").read_text("utf-8")
        note = 'id="td-playground" data-missing="this copy of the site was built without pyodide"'
        write("playground.md", page.replace('id="td-playground"', note))
    config = BUILD / "mkdocs.yml"
    config.write_text(yaml.safe_dump(configuration(), sort_keys=False), "utf-8")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "-f", str(config)]
    return subprocess.call(command, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})


def write(name: str, text: str) -> None:
    """A page, by its path below build/docs."""
    path = PAGES / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def configuration() -> dict:
    """mkdocs.yml with absolute paths, and the pages of generated folders in `nav`."""
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
    config.update(docs_dir=str(PAGES), site_dir=str(ROOT / "site"), nav=expanded(config["nav"]))
    for plugin in config["plugins"]:
        if isinstance(plugin, dict) and "mkdocstrings" in plugin:
            plugin["mkdocstrings"]["handlers"]["python"]["paths"] = [str(ROOT)]
    return config


def expanded(nav):
    """`nav` with "folder/" replaced by the pages of that folder, index.md first."""
    if isinstance(nav, list):
        return [expanded(entry) for entry in nav]
    if isinstance(nav, dict):
        return {title: expanded(entry) for title, entry in nav.items()}
    if not nav.endswith("/"):
        return nav
    pages = sorted((PAGES / nav).glob("*.md"), key=lambda page: (page.stem != "index", page.name))
    return [nav + page.name for page in pages]


if __name__ == "__main__":
    sys.exit(main())
