"""A browser, the built site on a local server, and a record of all that goes wrong on a page."""

import functools
import http.server
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "site"
ARTIFACTS = ROOT / "artifacts"
INPUTS = ("docs", "notebooks", "examples", "teachdist", "mkdocs.yml", "CONTRIBUTING.md")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-quic",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]

sys.path.insert(0, str(ROOT / "docs" / "tools"))


@pytest.fixture(scope="session")
def chromium():
    """The path of a Chromium."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    pytest.skip("there is no Chromium: `make chromium` installs it")


@pytest.fixture(scope="module")
def browser(chromium):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield started
        started.close()


@pytest.fixture(scope="session")
def site():
    """The address of the site; it is built first if anything is newer than it."""
    if _is_stale():
        built = subprocess.run(
            [sys.executable, str(ROOT / "docs" / "build.py")],
            capture_output=True,
            text=True,
            timeout=600,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        assert built.returncode == 0, built.stdout + built.stderr
    handler = functools.partial(_Quiet, directory=str(SITE))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


class Visit:
    """A page in a context of its own; `troubles` is what should not have happened."""

    def __init__(self, browser, address, **context):
        self.address = address
        self.context = browser.new_context(**context)
        self.page = self.context.new_page()
        self.troubles = []
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.troubles.append(f"error: {error}"))
        self.page.on("requestfailed", self._failed)
        self.page.on("request", self._asked)
        self.page.on("response", self._answered)

    def _console(self, message):
        if message.type in ("error", "warning"):
            self.troubles.append(f"console: {message.text}")

    def _failed(self, request):
        if request.failure == "net::ERR_ABORTED":
            return  # the page was left while it still loaded
        self.troubles.append(f"failed: {request.url}")

    def _asked(self, request):
        if not request.url.startswith((self.address, "data:", "blob:")):
            self.troubles.append(f"external: {request.url}")

    def _answered(self, response):
        if response.status >= 400:
            self.troubles.append(f"{response.status}: {response.url}")


@pytest.fixture
def visit(browser, site):
    """visit("page.html", **options of the context) -> Visit; troubles of any fail the test."""
    visits = []

    def go(path, address=site, **context):
        visits.append(Visit(browser, address, **context))
        visits[-1].page.goto(address + path)
        return visits[-1]

    yield go
    for one in visits:
        one.context.close()
    assert not [trouble for one in visits for trouble in one.troubles]


def _is_stale():
    if not (SITE / "index.html").is_file():
        return True
    built = (SITE / "index.html").stat().st_mtime
    files = [file for name in INPUTS for file in [ROOT / name, *(ROOT / name).rglob("*")]]
    return any(
        file.is_file() and file.stat().st_mtime > built and "__pycache__" not in file.parts
        for file in files
        if file.exists()
    )


class _Quiet(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass
