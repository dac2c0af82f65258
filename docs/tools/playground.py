"""The playground's engine: pyodide from its npm package, and the package's pure part as an archive.

Pinned; fetched once with `npm pack` and kept in build/npm, so a later build needs no connection.
"""

import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / "build" / "npm"
PYODIDE = "314.0.7"
FILES = (
    "pyodide.mjs",
    "pyodide.asm.mjs",
    "pyodide.asm.wasm",
    "pyodide-lock.json",
    "python_stdlib.zip",
)
PARTS = ("collectives", "pictures")


def vendor(assets: Path) -> str | None:
    """Put pyodide and teachdist's pure part into `assets`; why it could not be done, or None."""
    with zipfile.ZipFile(assets / "teachdist.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        sources = [ROOT / "teachdist" / "__init__.py"]
        for part in PARTS:
            sources += sorted((ROOT / "teachdist" / part).rglob("*.py"))
        for source in sources:
            archive.write(source, source.relative_to(ROOT))
    try:
        package = npm("pyodide", PYODIDE)
    except (OSError, subprocess.SubprocessError) as error:
        return f"npm could not fetch pyodide {PYODIDE} ({error})"
    (assets / "pyodide").mkdir()
    for name in FILES:
        shutil.copy(package / name, assets / "pyodide")
    return None


def npm(name: str, version: str) -> Path:
    """The folder of an npm package's files, fetched if it isn't there; raises if it can't be."""
    folder = CACHE / f"{name}-{version}"
    if not folder.is_dir():
        CACHE.mkdir(parents=True, exist_ok=True)
        command = ["npm", "pack", "--silent", "--pack-destination", str(CACHE), f"{name}@{version}"]
        subprocess.run(command, check=True, capture_output=True, timeout=180, cwd=CACHE)
        half_done = folder.with_suffix(".part")
        with tarfile.open(CACHE / f"{name}-{version}.tgz") as archive:
            archive.extractall(half_done, filter="data")
        half_done.joinpath("package").rename(folder)
        half_done.rmdir()
    return folder
