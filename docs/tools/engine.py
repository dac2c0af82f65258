"""The playground's engine: pyodide from npm, and the package's pure part as an archive."""

import shutil
import zipfile
from pathlib import Path

from npm import NotFetchedError, npm

ROOT = Path(__file__).resolve().parents[2]
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
        sources = [ROOT / "teachdist" / name for name in ("__init__.py", "words.py")]
        for part in PARTS:
            sources += sorted((ROOT / "teachdist" / part).rglob("*.py"))
        for source in sources:
            archive.write(source, source.relative_to(ROOT))
    try:
        package = npm("pyodide", PYODIDE)
    except NotFetchedError as error:
        return str(error)
    (assets / "pyodide").mkdir()
    for name in FILES:
        shutil.copy(package / name, assets / "pyodide")
    return None
