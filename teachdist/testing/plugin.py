"""What pytest calls: the marker `ranks`, the option --ranks-real, how failures are shown.

    @pytest.mark.ranks(4)
    def test_sum():
        x = torch.ones(1) * dist.get_rank()
        dist.all_reduce(x)
        assert x.item() == 6

A run that does not use the marker pays for this file and for no other: torch is imported when the
first marked test runs.
"""

import pytest
from _pytest.unittest import TestCaseFunction

_OPTIONS = {"backend", "buffers", "device_as", "init", "seed", "timeout", "topology"}
_NUMBER = pytest.StashKey[int]()
_FAILED = pytest.StashKey[object]()
_USAGE = "write @pytest.mark.ranks(4), or ranks(2, 4, 8) for one test of each"


def pytest_addoption(parser):
    """--ranks-real."""
    parser.getgroup("ranks").addoption(
        "--ranks-real",
        action="store_true",
        help="run tests marked `ranks` on processes, a rank each, in place of virtual ranks",
    )


def pytest_configure(config):
    """The marker's words, for `pytest --markers`."""
    if config.getoption("ranks_real") and config.getoption("usepdb"):
        raise pytest.UsageError(
            "--pdb cannot look into another process: leave --ranks-real out, and the debugger "
            "opens on the rank that failed first"
        )
    config.addinivalue_line(
        "markers",
        "ranks(n, *more, backend='teachdist', init=True, timeout=30, topology=None, seed=0): run "
        "the test's body on each of n ranks with a process group, once for each n given; virtual "
        "ranks of this process unless --ranks-real",
    )


@pytest.fixture
def _ranks(request):
    return request.param


def pytest_generate_tests(metafunc):
    """ranks(2, 4, 8) makes three tests of one."""
    marker = metafunc.definition.get_closest_marker("ranks")
    if marker is None:
        return
    numbers = _checked(marker, metafunc.definition.nodeid)
    if len(numbers) > 1:
        metafunc.fixturenames.append("_ranks")
        ids = [f"{number}ranks" for number in numbers]
        metafunc.parametrize("_ranks", numbers, indirect=True, ids=ids)


def _checked(marker, name):
    """The numbers of ranks that a marker asks for."""
    numbers, unknown = marker.args, sorted(set(marker.kwargs) - _OPTIONS)
    if not numbers or any(type(number) is not int or number < 1 for number in numbers):
        given = ", ".join(map(repr, numbers))
        raise pytest.UsageError(
            f"{name}: the marker ranks needs one number of ranks or more, each at least 1; got "
            f"ranks({given}): {_USAGE}"
        )
    if unknown:
        raise pytest.UsageError(
            f"{name}: the marker ranks does not know {', '.join(unknown)}; it knows "
            f"{', '.join(sorted(_OPTIONS))}"
        )
    return numbers


def pytest_collection_modifyitems(items):
    """What cannot be run on ranks says so before anything runs."""
    for item in items:
        marker = item.get_closest_marker("ranks")
        if marker is None:
            continue
        if not isinstance(item, pytest.Function) or isinstance(item, TestCaseFunction):
            raise pytest.UsageError(
                f"{item.nodeid}: the marker ranks is for functions and for methods of plain "
                "classes, not for TestCase and other items"
            )
        callspec = getattr(item, "callspec", None)
        parameters = callspec.params if callspec is not None else {}
        item.stash[_NUMBER] = parameters.get("_ranks", marker.args[0])


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Run a marked test's body on its ranks; raise what the first rank to fail raised."""
    number = pyfuncitem.stash.get(_NUMBER, None)
    if number is None:
        return None
    from teachdist.testing.body import Body

    options = dict(pyfuncitem.get_closest_marker("ranks").kwargs)
    if pyfuncitem.config.getoption("ranks_real"):
        from teachdist.testing.processes import run

        failed = run(Body(pyfuncitem), number, options, _look(pyfuncitem.config))
    else:
        from teachdist.testing.rehearsed import run

        failed = run(Body(pyfuncitem), number, options)
    if failed:
        pyfuncitem.stash[_FAILED] = failed
        raise failed.first
    return True


def _look(config):
    """How failures are to be shown, for a process that knows nothing of pytest's options."""
    style = config.getoption("tbstyle")
    return {
        "style": "long" if style in ("auto", "line", "no") else style,
        "showlocals": config.getoption("showlocals"),
    }


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Show each failure of the ranks once, with the ranks that it came from."""
    report = yield
    failed = item.stash.get(_FAILED, None)
    if failed and call.when == "call" and report.failed and call.excinfo.value is failed.first:
        report.longrepr = failed.shown(item)
    return report


def pytest_unconfigure():
    """Processes that were kept for further tests end with the run."""
    import sys

    processes = sys.modules.get("teachdist.testing.processes")
    if processes is not None:
        processes.close()
