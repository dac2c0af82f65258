"""A test's body on real ranks, a process for each; see `pool.py`.

The processes stay for the next test, with a process group made anew; after a failure nobody knows
in which state they are, and others take their place.
"""

import inspect
import os
from datetime import timedelta
from pathlib import Path

import cloudpickle
import pytest
import torch.distributed as dist

from teachdist.testing.failures import Failure, Failures, cut
from teachdist.testing.pool import RankTimeoutError, SharedPools

TIMEOUT = 30  # seconds that a call of the process group may wait
_CALLS = 4  # times that, and the whole test is ended
_OWN = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "RANKS_DIRECTORY"}
_ALIKE = {"buffers", "device_as", "seed", "topology"}  # what only virtual ranks can be told
_pools = SharedPools()
_count = 0


def run(body, number, options, look):
    """Run body.call() on `number` ranks; the `Failures`, or None.

    options: the marker's. look: words for pytest's representation of a failure.
    """
    global _count
    _count += 1
    timeout = options.pop("timeout", TIMEOUT)
    options = {name: value for name, value in options.items() if name not in _ALIKE}
    _check_arguments(body)
    test = body.function, body.owner, body.arguments
    around = dict(os.environ), os.getcwd(), _count, timeout, look
    failed = _pools.get(number, None).failures(
        _on_rank, *test, around, timeout=_CALLS * timeout, **options
    )
    failed = [Failure(rank, _outcome(e), getattr(e, "shown", None)) for rank, e in failed]
    killed = [one for one in failed[1:] if isinstance(one.error, RankTimeoutError)]
    return Failures([one for one in failed if one not in killed], killed)


def close():
    """End the processes that were kept."""
    _pools.close()


def _check_arguments(body):
    """Refuse what cannot be sent to another process, by its name."""
    for name, value in body.arguments.items():
        why = None
        try:
            cloudpickle.dumps(value)
        except Exception as error:  # noqa: BLE001  whatever its class raises
            why = str(error)
        if why is not None:
            pytest.fail(
                f"{body.name}: the fixture {name} cannot go to other processes: {why}. Without "
                "--ranks-real the test runs in this process and can use it.",
                pytrace=False,
            )


def _on_rank(function, owner, arguments, around, init=True, backend="teachdist"):
    """What a rank does for one test."""
    environment, directory, count, timeout, look = around
    kept = {name: os.environ[name] for name in _OWN}
    os.environ.clear()
    os.environ.update(environment | kept)
    os.chdir(directory)
    if init:
        store = dist.FileStore(str(Path(kept["RANKS_DIRECTORY"], f"test{count}")), -1)
        rank, size = int(kept["RANK"]), int(kept["WORLD_SIZE"])
        limit = timedelta(seconds=timeout)
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=limit)
    try:
        function(*(() if owner is None else (owner,)), **arguments)
    except (pytest.skip.Exception, pytest.fail.Exception, pytest.xfail.Exception) as outcome:
        kind = type(outcome).__name__  # "Skipped", ...: classes that cannot travel
        raise _Outcome(kind, outcome.msg) from None
    except BaseException as error:
        error.shown = _shown(error, function, look)
        raise
    if dist.is_initialized():
        dist.destroy_process_group()


class _Outcome(Exception):
    """What pytest.skip, pytest.fail or pytest.xfail has raised on a rank."""


def _outcome(error):
    """The error that this process is to raise for one that came from a rank."""
    if not isinstance(error, _Outcome):
        return error
    kind, words = error.args
    kinds = {"Skipped": pytest.skip, "Failed": pytest.fail, "XFailed": pytest.xfail}
    return kinds[kind].Exception(words)


def _shown(error, function, look):
    """Pytest's representation, which must be made where the lines and the values are."""
    cut(error)
    info = pytest.ExceptionInfo.from_exception(error)
    code = inspect.unwrap(function).__code__
    whole = info.traceback
    info.traceback = whole.cut(path=code.co_filename, firstlineno=code.co_firstlineno - 1) or whole
    return info.getrepr(**look)
