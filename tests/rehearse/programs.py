"""The nine programs of examples/rehearse, and how far each is from one process."""

import importlib
import sys
from pathlib import Path

from teachdist import rehearse

FOLDER = Path(__file__).parents[2] / "examples" / "rehearse"
sys.path.insert(0, str(FOLDER))


def program(name):
    """The module of a program."""
    return importlib.import_module(name)


def run(name, *args, ranks, **how):
    """Rehearse a program's main."""
    return rehearse(program(name).main, *args, ranks=ranks, init=False, **how)


def difference(results, expected):
    """The largest difference of any parameter on any rank."""
    return max(
        (value - expected[name]).abs().max().item()
        for result in results
        for name, value in result.items()
    )
