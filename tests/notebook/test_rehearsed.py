"""Cells on virtual ranks: what stays between them, what failing leaves behind."""

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from traitlets.config import Config

from teachdist.notebook.errors import RanksError
from teachdist.notebook.rehearsed import RehearsedCluster


def said(cluster, cell, on=None):
    """{rank: items} of a cell."""
    asked = cluster.execute(cell, on)
    cluster.wait(asked)
    return {task.rank: task.items for task in asked}


def results(cluster, cell):
    """What the cell's last expression was on each rank, as text."""
    return [items[-1][1]["data"]["text/plain"] for items in said(cluster, cell).values()]


def test_names_groups_and_random_numbers_stay():
    with RehearsedCluster(4, "2 hosts x 2") as cluster:
        said(cluster, "torch.manual_seed(rank); mesh = dist.init_device_mesh('cpu', (2, 2))")
        first = results(cluster, "torch.rand(1).item()")
        assert len(set(first)) == 4
        assert first != results(cluster, "torch.rand(1).item()")
        said(cluster, "x = torch.tensor([rank]); dist.all_reduce(x, group=mesh.get_group(1))")
        assert cluster.pull("x.item()") == [1, 1, 5, 5]
        assert said(cluster, "print(world_size)", [2]) == {2: [("stdout", "4\n")]}
        assert cluster.run(lambda a: a + 1, 2) == [3] * 4
        assert cluster.rehearsal().seconds > 0


def test_a_hang_is_told_and_the_next_cell_runs():
    with RehearsedCluster(4) as cluster:
        with pytest.raises(RanksError) as caught:
            said(cluster, "if rank != 3:\n    dist.barrier()")
        assert str(caught.value).startswith("ranks 0-2: Hang: Nobody can go on: ")
        assert "Not there: rank 3 is idle" in str(caught.value)
        assert results(cluster, "x = torch.ones(1); dist.all_reduce(x); x.item()") == ["4.0"] * 4


def test_the_rank_that_failed_comes_first():
    with RehearsedCluster(3) as cluster:
        with pytest.raises(RanksError) as caught:
            said(cluster, "if rank == 2:\n    1 / 0\ndist.barrier()")
        lines = str(caught.value).splitlines()
        assert lines[0] == "rank 2: ZeroDivisionError: division by zero"
        assert lines[1].startswith("ranks 0-1: released from barrier() at ")


def test_the_magics():
    shell = InteractiveShell.instance(config=Config(HistoryManager={"enabled": False}))
    shell.run_line_magic("load_ext", "teachdist")
    shell.run_line_magic("ranks", '8 --rehearse "2 hosts x 4"')
    try:
        with capture_output() as shown:
            shell.run_cell("%%ranks\nx = torch.ones(2) * rank\ndist.all_reduce(x)\nx")
        assert shown.stdout.strip() == "[ranks 0-7] tensor([28., 28.])"
        with capture_output() as shown:
            shell.run_cell("%%ranks --trace\ndist.barrier()")
        assert "barrier() at cell" in str(shown.outputs[0].data)
        with capture_output() as shown:
            shell.run_line_magic("ranks", "status")
        assert shown.stdout.strip() == "[ranks 0-7] idle"
        with capture_output() as shown:
            shell.run_line_magic("ranks", "who")
        assert " ".join(shown.stdout.split()) == "x ranks 0-7 Tensor float32[2] [28.0, 28.0]"
        shell.run_cell("%%ranks\nprint(rank // 4)")
        with capture_output() as shown:
            shell.run_line_magic("ranks", "output")
        assert shown.stdout.splitlines() == ["[ranks 0-3] 0", "[ranks 4-7] 1"]
    finally:
        shell.run_line_magic("ranks", "stop")
        InteractiveShell.clear_instance()
