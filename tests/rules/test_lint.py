"""`teachdist lint`: each mistake is seen, its mended twin is not; good programs are left alone."""

import textwrap
from pathlib import Path

import pytest

from teachdist.cli import main
from teachdist.rules.lint import lint

ROOT = Path(__file__).parents[2]
CASES = {
    "TD001": ("if rank == 0:\n    dist.barrier()", "if rank == 0:\n    print(1)\ndist.barrier()"),
    "TD001 either branch": (
        "if dist.get_rank() == 0:\n    dist.broadcast(t, 0)\nelse:\n    dist.all_reduce(t)",
        "if dist.get_rank() == 0:\n    dist.broadcast(t, 0)\nelse:\n    dist.broadcast(u, 0)",
    ),
    "TD001 a group of some": (
        "if rank in (0, 1):\n    dist.all_reduce(t)",
        "if rank in (0, 1):\n    dist.all_reduce(t, group=some)",
    ),
    "TD002": (
        "def f():\n    if rank != 0:\n        return\n    dist.all_reduce(t)",
        "def f():\n    dist.all_reduce(t)\n    if rank != 0:\n        return\n    print(t)",
    ),
    "TD002 a loop": (
        "for x in data:\n    if rank == 1 and x > 3:\n        break\n    dist.all_reduce(x)",
        "for x in data:\n    if x > 3:\n        break\n    dist.all_reduce(x)",
    ),
    "TD003": (
        "out = [torch.zeros(2)] * n\ndist.all_gather(out, t)",
        "out = [torch.zeros(2) for _ in range(n)]\ndist.all_gather(out, t)",
    ),
    "TD004": (
        "if rank < 2:\n    g = dist.new_group([0, 1])",
        "g = dist.new_group([0, 1])\nif rank < 2:\n    dist.barrier(group=g)",
    ),
    "TD005": ("dist.all_reduce(t, async_op=True)", "w = dist.all_reduce(t, async_op=True)"),
    "TD006": (
        "g = dist.new_group([2, 3])\ndist.broadcast(t, src=0, group=g)",
        "g = dist.new_group([2, 3])\ndist.broadcast(t, src=2, group=g)",
    ),
    "TD007": (
        "dist.all_to_all_single(out, t, [1, 3], [1, 3])",
        "dist.all_to_all_single(out, t, [2, 2], [2, 2])",
    ),
    "TD008": (
        'dist.init_process_group("nccl")\nmodel.cuda()',
        'dist.init_process_group("nccl")\ntorch.cuda.set_device(local)\nmodel.cuda()',
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_mistake_is_seen_and_its_mended_twin_is_not(case):
    broken, mended = CASES[case]
    assert {found.code for found in lint(broken)} == {case[:5]}
    assert lint(mended) == []


def test_a_finding_is_written_as_ruff_writes_it():
    (found,) = lint("if rank == 0:\n    dist.barrier()", "train.py")
    assert str(found) == (
        "train.py:2:5: TD001 barrier is called by some ranks only: under a condition on the rank"
    )


@pytest.mark.parametrize(
    ("mark", "count"), [("# noqa", 0), ("# noqa: TD001", 0), ("# noqa: E9", 1)]
)
def test_a_line_can_be_silenced(mark, count):
    assert len(lint(f"if rank == 0:\n    dist.barrier()  {mark}")) == count


GOOD = """
    import torch.distributed as dist
    def main(rank, world_size):
        if rank == 0:
            print("hello")
        if rank == 0:
            dist.send(t, 1)
        elif rank == 1:
            dist.recv(t, 0)
        if world_size > 1:
            dist.all_reduce(t)
        if is_main and rank == 0:
            torch.save(model, "x")
        dist.scatter(out, parts if rank == 0 else None, 0)
        if rank == 0:
            dist.gather(t, outs, 0)
        else:
            dist.gather(t, None, 0)
        if rank < 2:
            dist.all_reduce(t, dist.ReduceOp.SUM, some)
            dist.broadcast(t, 0, some)
    def first(rank):
        if rank != 0:
            dist.barrier()
        yield
        if rank == 0:
            dist.barrier()
"""


def test_good_programs_are_left_alone():
    assert lint(textwrap.dedent(GOOD)) == []


def test_mended_hangs_and_examples_are_left_alone():
    files = [
        *ROOT.glob("examples/hangs/*/fixed.py"),
        *ROOT.glob("examples/rehearse/*.py"),
        *ROOT.glob("examples/own_algorithm/*.py"),
        *ROOT.glob("teachdist/*.py"),
    ]
    assert len(files) > 30
    found = [str(one) for file in files for one in lint(file.read_text("utf-8"), file.name)]
    assert found == []


@pytest.mark.parametrize(
    ("folder", "code"),
    [
        ("01-one-rank-more", "TD001"),
        ("02-another-collective", "TD001"),
        ("06-root-outside", "TD006"),
        ("10-one-tensor-many-times", "TD003"),
        ("23-send-and-go", "TD005"),
    ],
)
def test_hangs_of_the_gallery_that_the_text_shows(folder, code):
    text = (ROOT / "examples" / "hangs" / folder / "broken.py").read_text("utf-8")
    assert {found.code for found in lint(text)} == {code}


def test_the_command(tmp_path, capsys):
    (tmp_path / "good.py").write_text("x = 1\n")
    assert main(["lint", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "All checks passed!\n"
    (tmp_path / "bad.py").write_text("if rank:\n    dist.barrier()\n")
    assert main(["lint", str(tmp_path)]) == 1
    assert "bad.py:2:5: TD001 barrier" in capsys.readouterr().out
    (tmp_path / "none.py").write_text("if rank\n")
    assert main(["lint", str(tmp_path)]) == 2
    assert "none.py" in capsys.readouterr().err


def test_notebooks_are_read_cell_by_cell(tmp_path, capsys):
    text = (ROOT / "notebooks" / "19-hang-gallery.ipynb").read_text("utf-8")
    (tmp_path / "gallery.ipynb").write_text(text, encoding="utf-8")
    assert main(["lint", str(tmp_path / "gallery.ipynb")]) == 1
    assert "gallery.ipynb:cell 4:9:9: TD001 broadcast" in capsys.readouterr().out
