"""--ranks-real: the same tests on a process for each rank."""

import pytest

SOURCE = """
import os, pytest, torch, torch.distributed as dist
from teachdist.testing import Sequencer

@pytest.mark.ranks(2)
@pytest.mark.parametrize("n", [1, 2])
def test_order(n, monkeypatch_free):
    order = Sequencer()
    if dist.get_rank() == 0:
        with order(0):
            work = dist.isend(torch.ones(n), 1)
        work.wait()
    else:
        with order(1):
            x = torch.zeros(n)
        dist.recv(x, 0)
        assert x.sum() == n
    assert os.environ["GIVEN"] == "yes"
    assert os.getpid() != int(os.environ["PARENT"])

@pytest.fixture
def monkeypatch_free(monkeypatch):
    monkeypatch.setenv("GIVEN", "yes")
    monkeypatch.setenv("PARENT", str(os.getpid()))

@pytest.mark.ranks(2, backend="gloo")
def test_backend():
    assert dist.get_backend() == "gloo"
    pytest.skip("seen")

@pytest.mark.ranks(2, init=False)
def test_wrong():
    assert not dist.is_initialized()
    assert int(os.environ["RANK"]) == 2

@pytest.mark.ranks(2)
def test_capsys(capsys):
    pass
"""


def test_processes(pytester):
    pytester.makepyfile(test_on_ranks=SOURCE)
    done = pytester.runpytest_inprocess("-p", "teachdist.testing.plugin", "--ranks-real")
    done.assert_outcomes(passed=2, skipped=1, failed=2)
    done.stdout.fnmatch_lines(
        [
            '>       assert int(os.environ["RANK"]) == 2',
            "E*assert ? == 2*",
            "On rank ?: AssertionError: assert ? == 2",
            "*the fixture capsys cannot go to other processes: *Without --ranks-real*",
        ]
    )


def test_the_debugger_needs_virtual_ranks(pytester):
    done = pytester.runpytest_inprocess("-p", "teachdist.testing.plugin", "--ranks-real", "--pdb")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    assert "--pdb cannot look into another process" in done.stderr.str()
