"""The package as a whole: what importing it costs, and that its public names exist."""

import subprocess
import sys
from importlib.metadata import entry_points

import pytest

import teachdist


def modules_after(statement):
    code = f"import sys\n{statement}\nprint(*sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    return set(run.stdout.split())


@pytest.mark.parametrize("statement", ["import teachdist", "import teachdist.collectives"])
def test_the_subject_needs_no_torch(statement):
    assert not {"torch", "numpy", "ipyparallel"} & modules_after(statement)


@pytest.mark.parametrize("name", sorted(teachdist.__all__))
def test_every_public_name_exists(name):
    assert getattr(teachdist, name) is not None


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'all_reduse'"):
        _ = teachdist.all_reduse


def test_torch_finds_the_backend_by_its_entry_point():
    (found,) = entry_points(group="torch.distributed.backends", name="teachdist")
    assert callable(found.load())
