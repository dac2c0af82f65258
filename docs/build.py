"""The site's pages, from what they are about: written to build/docs when mkdocs.yml is read.

    docs/*.md, docs/assets   ->  build/docs            `<!-- show: ... -->` become players
    notebooks/*.ipynb        ->  build/docs/course     tools/course.py
    the catalogue            ->  build/docs/algorithms tools/algorithms.py
    the public names         ->  build/docs/api        tools/reference.py
    examples/hangs           ->  build/docs/hangs.md   tools/hangs.py
    documented.toml          ->  build/docs/coverage.md, discrepancies.md  tools/tables.py
    docs/benchmarks.json     ->  the table of benchmarks.md tools/benchmarks.py
    npm's pyodide            ->  build/docs/assets/pyodide  tools/engine.py

mkdocs.yml calls `docs_dir()` where it names the folder, and `nav()`. That is how `mkdocs build`,
`mkdocs serve`, `zensical build` and `make docs` work alike: a hook would come too late for mkdocs,
which wants to see the folder first, and Zensical runs none. Only what has changed is written, so
that a server that watches the folder comes to rest.

Without a connection everything is built but what comes from npm (a copy from an earlier build is
used again); the playground's page then says that it isn't there.
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs" / "tools")]

import algorithms  # noqa: E402
import benchmarks  # noqa: E402
import course  # noqa: E402
import engine  # noqa: E402
import hangs  # noqa: E402
import npm  # noqa: E402
import players  # noqa: E402
import reference  # noqa: E402
import tables  # noqa: E402
import wire  # noqa: E402

from teachdist.notebook.show import script  # noqa: E402

PAGES = "build/docs"
ASSETS = ("*.css", "*.js", "*.svg", "*.py")


def main() -> int:
    """Build the site; mkdocs' exit status."""
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "-f", str(ROOT / "mkdocs.yml")]
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": paths}
    return subprocess.call(command, env=env)


def docs_dir() -> str:
    """Write the pages, and remove those that are no more; the folder, as mkdocs.yml names it."""
    written = files()
    for name, content in written.items():
        write(ROOT / PAGES / name, content)
    for path in (ROOT / PAGES).rglob("*"):
        if path.is_file() and path.relative_to(ROOT / PAGES).as_posix() not in written:
            path.unlink()
    return PAGES


def nav(entries):
    """`entries` with "folder/" replaced by the pages of that folder, index.md first."""
    if isinstance(entries, list):
        return [nav(entry) for entry in entries]
    if isinstance(entries, dict):
        return {title: nav(entry) for title, entry in entries.items()}
    if not entries.endswith("/"):
        return entries
    pages = (ROOT / PAGES / entries).glob("*.md")
    return [entries + p.name for p in sorted(pages, key=lambda p: (p.stem != "index", p.name))]


def files() -> dict[str, str | bytes]:
    """All files of the folder: name -> content."""
    found: dict[str, str | bytes] = {}
    for page in (ROOT / "docs").glob("*.md"):
        found[page.name] = benchmarks.fill(wire.fill(players.fill(page.read_text("utf-8"))))
    for pattern in ASSETS:
        for asset in (ROOT / "docs" / "assets").glob(pattern):
            found[f"assets/{asset.name}"] = asset.read_bytes()
    found["assets/player.js"] = script()
    found["assets/teachdist.zip"] = engine.package()
    found["contributing.md"] = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    for part in (course, algorithms, reference, hangs, tables):
        found.update(part.pages())
    try:
        found.update({f"assets/{name}": data for name, data in engine.python().items()})
    except npm.NotFetchedError as error:
        sys.stderr.write(f"docs: the playground is left out: {error}\n")
        note = 'id="td-playground" data-missing="this copy of the site was built without pyodide"'
        found["playground.md"] = found["playground.md"].replace('id="td-playground"', note)
    return found


def write(path: Path, content: str | bytes) -> None:
    """A file, unless it holds that already."""
    data = content.encode() if isinstance(content, str) else content
    if path.is_file() and path.read_bytes() == data:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


if __name__ == "__main__":
    sys.exit(main())
