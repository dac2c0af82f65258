import subprocess
import sys

import pytest

from teachdist import stores


def test_all_names_are_there():
    for name in stores.__all__:
        assert getattr(stores, name) is not None
    assert set(stores.__all__) <= set(dir(stores))


def test_an_unknown_name():
    with pytest.raises(AttributeError, match="no attribute 'EtcdStore'"):
        _ = stores.EtcdStore


def test_importing_it_imports_no_torch():
    program = "import sys, teachdist.stores; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
