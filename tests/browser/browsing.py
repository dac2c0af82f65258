"""What the browser tests share: where things are, and a visit that records all that goes wrong."""

import http.server
from pathlib import Path

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


class Visit:
    """A page in a context of its own; `troubles` is what should not have happened."""

    def __init__(self, browser, address, **context):
        self.address = address
        self.context = browser.new_context(**context)
        self.page = self.context.new_page()
        self.troubles = []
        self.forgiven = None  # a word: troubles with it were to be expected
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.troubles.append(f"error: {error}"))
        self.page.on("requestfailed", self._failed)
        self.page.on("request", self._asked)
        self.page.on("response", self._answered)

    def _console(self, message):
        if message.type in ("error", "warning"):
            self.troubles.append(f"console: {message.text} {message.location.get('url', '')}")

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


def site_is_stale():
    if not (SITE / "index.html").is_file():
        return True
    built = (SITE / "index.html").stat().st_mtime
    files = [file for name in INPUTS for file in [ROOT / name, *(ROOT / name).rglob("*")]]
    return any(
        file.is_file() and file.stat().st_mtime > built and "__pycache__" not in file.parts
        for file in files
        if file.exists()
    )


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass
