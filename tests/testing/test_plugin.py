"""The marker `ranks`, as a user's pytest run sees it: on virtual ranks."""

import pytest

HEAD = """
import pytest, torch, torch.distributed as dist
from teachdist.testing import Sequencer
"""
PLUGINS = [
    "-pteachdist.testing.plugin",
    *(f"-pno:{other}" for other in ("cacheprovider", "hypothesispytest", "nbval", "anyio")),
]


@pytest.fixture
def tests(pytester):
    """tests(source, *options) runs a test file; pytest's answer."""

    def run(source, *options):
        pytester.makepyfile(HEAD + source)
        return pytester.runpytest_inprocess(*PLUGINS, *options)

    return run


@pytest.mark.ranks(4)
def test_every_rank_runs_the_body():
    import torch
    import torch.distributed as dist

    x = torch.ones(1) * dist.get_rank()
    dist.all_reduce(x)
    assert x.item() == 6


def test_numbers_of_ranks_make_tests(tests):
    done = tests(
        """
@pytest.mark.ranks(2, 4)
@pytest.mark.parametrize("n", [1, 3])
def test_sum(n):
    x = torch.ones(n)
    dist.all_reduce(x)
    assert x.tolist() == [dist.get_world_size()] * n
""",
        "-v",
    )
    done.assert_outcomes(passed=4)
    done.stdout.fnmatch_lines_random([f"*test_sum?{n}ranks-{k}?*" for n in (2, 4) for k in (1, 3)])


def test_a_failure_shows_its_lines_and_values_once(tests):
    done = tests(
        """
@pytest.mark.ranks(4)
def test_sum():
    x = torch.ones(1)
    dist.all_reduce(x)
    assert x.item() == 2
"""
    )
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(
        ["On ranks 0-3:", ">       assert x.item() == 2", "E       assert 4.0 == 2"]
    )
    assert done.stdout.str().count("assert x.item() == 2\n") == 1
    done.stdout.fnmatch_lines(["FAILED *::test_sum - ranks 0-*"])


def test_one_line_with_other_values_is_shown_once(tests):
    done = tests(
        """
@pytest.mark.ranks(3)
def test_rank():
    assert [dist.get_rank()] == [0]
"""
    )
    done.stdout.fnmatch_lines(
        [
            "On rank 1:",
            "E       assert [[]1[]] == [[]0[]]",
            "*At index 0 diff: 1 != 0*",
            "On rank 2: AssertionError: assert [[]2[]] == [[]0[]]",
        ]
    )


def test_who_was_released_is_one_line(tests):
    done = tests(
        """
@pytest.mark.ranks(3)
def test_one():
    if dist.get_rank() == 1:
        raise ValueError("bad")
    dist.barrier()
"""
    )
    done.stdout.fnmatch_lines(["On rank 1:", "E*ValueError: bad", "Ranks 0 and 2: released, *"])


def test_a_hang_is_its_sentence(tests):
    done = tests(
        """
@pytest.mark.ranks(3)
def test_hang():
    if dist.get_rank() == 1:
        dist.recv(torch.ones(1), 0)
    dist.barrier()
"""
    )
    done.assert_outcomes(failed=1)
    text = done.stdout.str().partition("Captured log")[0]
    assert text.count("Nobody can go on") == 1
    assert "rank 1 is in recv(float32[1], src=rank 0, tag=0) at test_a_hang_is_its" in text
    assert "distributed_c10d.py" not in text  # the lines end where the test's own end


def test_fixtures_run_once_and_each_rank_has_a_copy(tests):
    done = tests(
        """
made = []

@pytest.fixture
def model():
    made.append(1)
    yield torch.nn.Linear(1, 1)
    made.append(2)

class TestRanks:
    def setup_method(self):
        self.seen = []

    @pytest.mark.ranks(2)
    def test_copy(self, model, tmp_path, monkeypatch, capsys):
        with torch.no_grad():
            model.weight.fill_(dist.get_rank())
        dist.barrier()
        assert model.weight.item() == dist.get_rank()
        self.seen.append(1)
        assert self.seen == [1]
        monkeypatch.setenv("SEEN", str(tmp_path))

def test_after():
    assert made == [1, 2]
    assert not dist.is_initialized()
"""
    )
    done.assert_outcomes(passed=2)


def test_skip_xfail_and_warnings_are_what_they_are(tests):
    done = tests(
        """
import warnings

@pytest.mark.ranks(2)
def test_skip():
    pytest.skip("not here")

@pytest.mark.xfail(strict=True)
@pytest.mark.ranks(2)
def test_wrong():
    assert dist.get_rank() == 5

@pytest.mark.ranks(2)
def test_warn():
    with pytest.warns(UserWarning, match=f"of {dist.get_rank()}"):
        dist.barrier()
        warnings.warn(f"of {dist.get_rank()}", stacklevel=1)
        dist.barrier()
""",
        "-rs",
    )
    done.assert_outcomes(passed=1, skipped=1, xfailed=1)
    done.stdout.fnmatch_lines(["SKIPPED*not here"])


def test_stops_at_the_first_failure(tests):
    source = """
@pytest.mark.ranks(2)
@pytest.mark.parametrize("n", [1, 2, 3])
def test_n(n):
    assert n < 2
"""
    tests(source, "-x").assert_outcomes(passed=1, failed=1)


def test_the_debugger_opens_on_the_rank_that_failed(tests, monkeypatch):
    opened = []
    monkeypatch.setattr("pdb.Pdb.interaction", lambda self, frame, trace: opened.append(trace))
    done = tests(
        """
@pytest.mark.ranks(3)
def test_rank():
    mine = dist.get_rank()
    assert mine != 1
""",
        "--pdb",
    )
    done.assert_outcomes(failed=1)
    trace = opened[0]
    trace = trace.__traceback__ if isinstance(trace, BaseException) else trace
    while trace.tb_next is not None:
        trace = trace.tb_next
    assert trace.tb_frame.f_locals["mine"] == 1


def test_the_ranks_may_make_their_own_group(tests):
    done = tests(
        """
@pytest.mark.ranks(2, init=False, topology="2 hosts x 1")
def test_own():
    assert not dist.is_initialized()
    dist.init_process_group("gloo")
    assert dist.get_world_size() == 2
"""
    )
    done.assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("marker", "words"),
    [
        ("ranks", "needs one number of ranks or more, each at least 1; got ranks()"),
        ("ranks(0)", "got ranks(0)"),
        ("ranks('2')", "got ranks('2')"),
        ("ranks(2, hosts=3)", "does not know hosts; it knows backend, "),
    ],
)
def test_a_wrong_marker_is_refused(tests, marker, words):
    done = tests(f"@pytest.mark.{marker}\ndef test_it(): pass")
    assert done.ret != 0
    assert words in done.stdout.str() + done.stderr.str()


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (
            """
import unittest
class TestIt(unittest.TestCase):
    @pytest.mark.ranks(2)
    def test_it(self): pass
""",
            "not for TestCase",
        ),
        ("@pytest.mark.ranks(2)\nasync def test_it(): pass", "not for async functions"),
    ],
)
def test_what_has_no_body_of_its_own_is_refused(tests, source, words):
    done = tests(source)
    assert done.ret != 0
    assert words in done.stdout.str() + done.stderr.str()


def test_runs_without_the_marker_import_nothing(pytester):
    pytester.makepyfile(
        """
import sys

def test_it():
    assert "torch" not in sys.modules
    assert {m for m in sys.modules if m.startswith("teachdist.")} == {
        "teachdist.testing", "teachdist.testing.plugin",
    }
"""
    )
    done = pytester.runpytest_subprocess(*PLUGINS)
    done.assert_outcomes(passed=1)
