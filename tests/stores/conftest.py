import contextlib

import pytest

from . import kinds


@pytest.fixture
def exits():
    """Clean-ups that a test adds to as it goes."""
    with contextlib.ExitStack() as stack:
        yield stack


@pytest.fixture
def makers(tmp_path, exits):
    return kinds.Makers(tmp_path, exits)


@pytest.fixture(params=kinds.ALL)
def make(request, makers):
    """Makes stores of one kind, of each in turn: make(timeout)."""
    return getattr(makers, request.param)


@pytest.fixture
def store(make):
    """An empty store of each kind in turn, with a time-out of 30 s."""
    return make()


@pytest.fixture(params=kinds.WITH_QUEUES)
def queues(request, makers):
    """Makes stores of each kind that has queues."""
    return getattr(makers, request.param)
