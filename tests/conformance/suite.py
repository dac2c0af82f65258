"""torch's distributed suite, pointed at any CPU backend: see README.md."""

import importlib
import os


class StandIn(str):
    """The candidate's name, which also compares equal to the name it stands in for.

    The suite says `if BACKEND == "gloo"` to choose a test's CPU body, and f"{BACKEND}:all_reduce"
    to name what it looks for; the first must hold for a stand-in and the second must not.
    """

    __slots__ = ("stands_for",)

    def __new__(cls, name, stands_for):
        self = super().__new__(cls, name)
        self.stands_for = stands_for
        return self

    def __eq__(self, other):
        return str.__eq__(self, other) or other == self.stands_for

    def __ne__(self, other):
        return not self == other

    __hash__ = str.__hash__


def load(backend, gate, modules=()):
    """The suite's module, imported with the skips of `gate` and then pointed at `backend`."""
    os.environ["BACKEND"] = gate
    os.environ.setdefault("INIT_METHOD", "env://")
    import torch.distributed as dist
    from torch.testing._internal import common_distributed as common
    from torch.testing._internal.distributed import distributed_test as suite

    for name in modules:
        importlib.import_module(name)  # registers the backend
    suite.BACKEND = StandIn(backend, gate)
    for name in ("ddp", "subgroup", "gpu", "cuda"):
        common.DistTestCases.backend_feature[name].add(backend)
    for names in (suite.PROFILING_SUPPORTED_BACKENDS, suite.SEND_RECV_PROFILING_SUPPORTED_BACKENDS):
        if backend not in names:
            names.append(backend)
    assert dist.is_backend_available(backend), f"{backend!r} is not registered"
    return suite


def case_class(suite):
    """A TestCase class with all tests of the suite, whose ranks are forked."""
    import torch.multiprocessing

    class Conformance(suite.TestDistBackend, suite.DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

    Conformance.__module__ = suite.__name__
    suite.Conformance = Conformance
    return Conformance
