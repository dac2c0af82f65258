"""What the pages show has been run: each ```python block, and the ```text block after it."""

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from teachdist.collectives import catalog
from teachdist.collectives.catalog import get, remove

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n^```text\n(.*?)^```)?", re.MULTILINE | re.DOTALL)
PROGRAM = re.compile(
    r'^```python title="([\w.]+)"\n(.*?)^```\n.*?^It prints `(.*?)`', re.MULTILINE | re.DOTALL
)
PAGES = [page for page in sorted((ROOT / "docs").glob("*.md")) if BLOCK.search(page.read_text())]


@pytest.fixture(autouse=True)
def own_algorithms_go_again():
    yield
    for op, names in catalog().items():
        for name in names:
            if not get(op, name).builtin:
                remove(op, name)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_code_of_a_page_gives_what_the_page_says(page):
    space = {}
    for code, expected in BLOCK.findall(page.read_text("utf-8")):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(compile(code, page.name, "exec"), space)
        if expected:
            assert said.getvalue() == expected


def test_there_are_such_pages():
    assert [page.stem for page in PAGES] == ["backends", "index", "rehearse", "rules", "slow"]


@pytest.mark.parametrize(
    ("file", "launcher"),
    [
        ("four.py", []),
        ("train.py", ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4"]),
    ],
)
def test_the_programs_for_the_start_run(file, launcher, tmp_path):
    page = (ROOT / "docs" / "getting-started.md").read_text("utf-8")
    programs = {name: (text, said) for name, text, said in PROGRAM.findall(page)}
    assert set(programs) == {"four.py", "train.py"}
    text, said = programs[file]
    (tmp_path / file).write_text(text)
    done = subprocess.run(
        [sys.executable, *launcher, file],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == said


def test_the_home_page_says_what_the_readme_says():
    """The ten lines are the same in both."""

    def ring(path):
        """From its first line to an empty line or the end of the block."""
        text = path.read_text("utf-8")
        return re.split(r"\n\n|```", text[text.index("def my_ring") :])[0].strip()

    assert ring(ROOT / "README.md") == ring(ROOT / "docs" / "index.md")
