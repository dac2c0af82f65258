"""The gallery as data: what its pages, notebook and tests share.

A case is a folder: broken.py (its docstring asks the question), fixed.py, and hang.toml with
title, ranks, why, remedy, seen, and a table for each way in which it was tried: [teachdist] and
[gloo] as a program of torchrun's, [notebook] as a cell, [rules] rehearsed by the rules of NCCL.
"""

import ast
import tomllib
from pathlib import Path

FOLDER = Path(__file__).parent
CASES = sorted(path.parent.name for path in FOLDER.glob("*/hang.toml"))


def about(case):
    """What hang.toml says."""
    return tomllib.loads((FOLDER / case / "hang.toml").read_text("utf-8"))


def source(case, which):
    """The text of broken.py or fixed.py."""
    return (FOLDER / case / f"{which}.py").read_text("utf-8")


def question(case):
    """What broken.py asks the reader."""
    return ast.get_docstring(ast.parse(source(case, "broken"))).partition("\n")[0]


def program(case, which):
    """The program without its docstring."""
    text = source(case, which)
    lines = text.splitlines()[ast.parse(text).body[0].end_lineno :]
    return "\n".join(lines).strip() + "\n"


def cell(case, which):
    """The program as a cell for ranks that are there already: its functions, and a call of main."""
    return program(case, which).partition("\n\nif __name__")[0].rstrip() + "\n\n\nmain(rank)\n"


def record(case, table, text):
    """Write what was said into a table of hang.toml."""
    path = FOLDER / case / "hang.toml"
    before, head, rest = path.read_text("utf-8").partition(f"[{table}]\n")
    top, opening, rest = rest.partition('says = """\n')
    _, closing, rest = rest.partition('"""')
    path.write_text(f"{before}{head}{top}{opening}{text}\n{closing}{rest}", "utf-8")
