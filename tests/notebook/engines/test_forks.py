"""Cells that fork: the rank stays as it is, and what children print is heard."""

import os
import signal

import psutil
import pytest
from clusters import RANKS, assert_gone

ALL = f"[ranks 0-{RANKS - 1}]"


@pytest.fixture
def run(cluster, capsys):
    """Run a cell; what it shows: (stdout, stderr)."""

    def run(cell, on=None):
        asked = cluster.execute(cell, on)
        try:
            cluster.wait(asked)
        finally:
            cluster.show(asked, None)
        return capsys.readouterr()

    return run


def test_a_child_is_terminated_alone(run, cluster):
    cell = """
import multiprocessing, time
child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(100,))
child.start()
child.terminate()
child.join()
with multiprocessing.get_context("fork").Pool(1) as pool:
    squares = pool.map(abs, [-1])
child.exitcode, squares
"""
    assert run(cell).out == f"{ALL} (-15, [1])\n"
    assert {one.state for one in cluster.status()} == {"idle"}
    assert run("dist.barrier(); 1").out == f"{ALL} 1\n"


def test_what_children_print_is_heard_with_their_rank(run):
    cell = """
import multiprocessing, subprocess, sys
def say():
    print("child of", rank)
    print("hm", file=sys.stderr)
child = multiprocessing.get_context("fork").Process(target=say)
child.start()
child.join()
subprocess.run([sys.executable, "-c", "print('program')"], check=True)
assert child.exitcode == 0
"""
    said = run(cell, [0, 1])
    assert said.out == (
        "[rank 0] child of 0\n         program\n[rank 1] child of 1\n         program\n"
    )
    assert said.err == "[ranks 0-1] hm\n"


def test_a_bare_fork_ends_at_the_end_of_its_cell(run):
    cell = """
import os
child = os.fork()
if child == 0:
    raise ValueError("in the child")
os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""
    said = run(cell)
    assert said.out == f"{ALL} 1\n"
    assert "ValueError: in the child" in said.err
    assert run("rank", [0]).out == "[rank 0] 0\n"


def test_children_end_with_a_rank_that_is_killed(run, cluster):
    run("import os, time\nchild = os.fork()\nif child == 0: time.sleep(1000)")
    children = [psutil.Process(pid) for pid in cluster.pull("child")]
    cluster.restart()
    assert_gone(children)


def test_what_a_thread_prints_after_its_cell_is_shown_with_the_next(run, cluster):
    cell = """
import threading
go_on = threading.Event()
def wait():
    go_on.wait(60)
    print("late", rank // 2)
thread = threading.Thread(target=wait)
thread.start()
"""
    assert run(cell) == ("", "")
    cluster.pull("(go_on.set(), thread.join())")
    said = run("'now'").out
    assert (
        said
        == f"[ranks 0-1, after its cell] late 0\n[rank 2, after its cell] late 1\n{ALL} 'now'\n"
    )


def test_a_rank_ends_with_its_nanny_and_says_so(cluster, capsys):
    """Without it no interrupt and no question would reach the rank."""
    [pid] = cluster.ask(os.getpid, on=[1])
    [nanny] = psutil.Process(pid).children()
    rank_1 = psutil.Process(pid)
    nanny.send_signal(signal.SIGKILL)
    assert_gone([rank_1])
    cluster.show_late()
    assert "[rank 1, after its cell] the process that passes" in capsys.readouterr().err
    cluster.restart()
    assert cluster.pull("rank") == list(range(RANKS))
