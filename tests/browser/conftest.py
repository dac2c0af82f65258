"""A browser, and the built site on a local server."""

import functools
import http.server
import os
import shutil
import subprocess
import sys
import threading

import pytest
from browsing import FLAGS, ROOT, SITE, QuietHandler, Visit, site_is_stale

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
    if site_is_stale():
        built = subprocess.run(
            [sys.executable, str(ROOT / "docs" / "build.py")],
            capture_output=True,
            text=True,
            timeout=600,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        assert built.returncode == 0, built.stdout + built.stderr
    handler = functools.partial(QuietHandler, directory=str(SITE))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


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
    assert not [
        trouble
        for one in visits
        for trouble in one.troubles
        if one.forgiven is None or one.forgiven not in trouble
    ]
