"""The playground's engine: pyodide from npm, and the package's pure part as an archive."""

import io
import zipfile
from pathlib import Path

from npm import npm

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


def package() -> bytes:
    """The part of teachdist that needs no torch, as an archive that Python imports from."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        sources = [ROOT / "teachdist" / name for name in ("__init__.py", "words.py")]
        for part in PARTS:
            sources += sorted((ROOT / "teachdist" / part).rglob("*.py"))
        for source in sources:
            archive.write(source, source.relative_to(ROOT))
    return written.getvalue()


def python() -> dict[str, bytes]:
    """Pyodide's files by name; raises NotFetchedError."""
    folder = npm("pyodide", PYODIDE)
    return {f"pyodide/{name}": (folder / name).read_bytes() for name in FILES}
