"""Files of npm packages, pinned: for the playground (pyodide) and for the tests (axe-core).

Fetched once with `npm pack` and kept in build/npm, so that later builds need no connection.
"""

import shutil
import subprocess
import tarfile
from pathlib import Path

CACHE = Path(__file__).resolve().parents[2] / "build" / "npm"
DEADLINE = 180  # seconds


class NotFetchedError(Exception):
    """The package isn't there and can't be had; the text says why."""


def npm(name: str, version: str) -> Path:
    """The folder of an npm package's files, fetched if it isn't there; raises NotFetchedError."""
    folder = CACHE / f"{name}-{version}"
    if not folder.is_dir():
        try:
            _fetch(name, version, folder)
        except (OSError, subprocess.SubprocessError) as error:
            raise NotFetchedError(f"npm could not fetch {name} {version} ({error})") from error
    return folder


def _fetch(name, version, folder):
    CACHE.mkdir(parents=True, exist_ok=True)
    command = ["npm", "pack", "--silent", "--pack-destination", str(CACHE), f"{name}@{version}"]
    subprocess.run(command, check=True, capture_output=True, timeout=DEADLINE, cwd=CACHE)
    half_done = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(half_done, ignore_errors=True)
    with tarfile.open(CACHE / f"{name}-{version}.tgz") as archive:
        archive.extractall(half_done, filter="data")
    half_done.joinpath("package").rename(folder)
    half_done.rmdir()
