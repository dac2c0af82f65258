"""The page on environment variables has all of them, and none that nobody reads."""

import re
from pathlib import Path

from teachdist.collectives import catalog
from teachdist.environment import KNOWN

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_and_the_code_know_the_same_variables():
    rows = re.findall(
        r"^\| `(TEACHDIST_\w*)", (ROOT / "docs/environment.md").read_text(), re.MULTILINE
    )
    files = set((ROOT / "teachdist").rglob("*.py")) - {ROOT / "teachdist/environment.py"}
    code = "".join(file.read_text() for file in files)
    read = set(re.findall(r'"(TEACHDIST_[A-Z_]+)"', code))
    assert set(rows) - {"TEACHDIST_"} == read == set(KNOWN)
    assert "TEACHDIST_" in rows, "the row of the operations"
    assert not read & {f"TEACHDIST_{op.upper()}" for op in catalog()}, "read by a name made up"
