"""What tests of several directories use."""

import pytest

from teachdist.collectives import catalog
from teachdist.collectives.catalog import remove

pytest_plugins = ["pytester"]


@pytest.fixture
def scratch():
    """Leaves the catalogue of algorithms as it was."""
    before = catalog()
    yield
    for op, names in catalog().items():
        for name in set(names) - set(before[op]):
            remove(op, name)
