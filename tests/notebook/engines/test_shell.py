import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from clusters import RANKS

from teachdist.notebook.engines import shell

ALL = f"[ranks 0-{RANKS - 1}]"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "int 3"),
        ("ab", "str 'ab'"),
        ([1, 2], "list [1, 2]"),
        (list(range(1000)), "list of 1000"),
        (torch.ones(2), "Tensor float32[2] [1.0, 1.0]"),
        (torch.ones(3, 4), "Tensor float32[3, 4]"),
        (np.ones(2, "int64"), "ndarray int64[2] [1, 1]"),
        (math.floor, "builtin_function_or_method <built-in function floor>"),
        (lambda: 0, "function"),
        (SimpleNamespace, "type"),
        (torch.eye(2).to_sparse(), "Tensor float32[2, 2]"),
        (object(), None),
    ],
)
def test_described(value, text):
    described = shell.described(value)
    assert described.startswith("object") if text is None else described == text


def test_users_names():
    ours = object()
    names = {"x": 1, "_y": 2, "math": math, "rank": ours, "exit": 3}
    hidden = SimpleNamespace(user_ns_hidden={"rank": ours, "exit": 4})
    assert shell.users_names(hidden, names) == {"x": 1, "exit": 3}
    assert shell.users_names(None, {"x": 1}) == {"x": 1}


@pytest.fixture
def run(cluster, capsys):
    def run(cell):
        asked = cluster.execute(cell)
        cluster.wait(asked)
        cluster.show(asked, None)
        return capsys.readouterr()

    return run


def test_equal_warnings_collapse(run):
    text = run("import warnings\nwarnings.warn('hm')").err
    assert text.startswith(f"{ALL} ")
    assert "UserWarning: hm" in text


def test_help_is_shown_under_the_cell(run):
    assert f"{ALL} Signature:" in run("dist.all_reduce?").out


def test_a_bar_of_tqdm_is_text(run):
    said = run("from tqdm.auto import tqdm\nfor _ in tqdm(range(3)): pass")
    assert "3/3" in said.err
    assert said.out == ""


def test_torchruns_variables_are_set(run):
    cell = "import os\n[os.environ[name] for name in ('RANK', 'WORLD_SIZE', 'LOCAL_RANK')]"
    lines = run(cell).out.splitlines()
    assert lines == [f"[rank {r}] ['{r}', '{RANKS}', '{r}']" for r in range(RANKS)]


def test_a_breakpoint_at_the_top_shows_what_cells_defined(run, cluster):
    cluster.restart()
    assert "(Pdb) names" in (said := run("mine = 3\nbreakpoint()\nmine = 4").out)
    assert "{'mine': 3}" in said


def test_ranks_draw_different_random_numbers(run, cluster):
    run("import random, numpy as np")
    run("drawn = [random.random(), np.random.rand(), torch.rand(1).item()]")
    for drawn in zip(*cluster.pull("drawn"), strict=True):
        assert len(set(drawn)) == RANKS
