"""The algorithms of collective communication, written to be read: plain Python, no torch.

Start with `ring.py`; the vocabulary is in `schedule.py`.
"""

from teachdist.collectives.catalog import algorithm, catalog, get
from teachdist.collectives.choose import Choice, choose
from teachdist.collectives.rounds import Algorithm, AlgorithmError
from teachdist.collectives.schedule import DEFINITIONS, Definition, Recv, Reduce, Send

# Importing a family enters its algorithms in the catalogue.
from teachdist.collectives import (  # noqa: F401  # isort: skip
    direct,
    dissemination,
    linear,
    pairwise,
    ring,
    tree,
)

__all__ = [
    "DEFINITIONS",
    "Algorithm",
    "AlgorithmError",
    "Choice",
    "Definition",
    "Recv",
    "Reduce",
    "Send",
    "algorithm",
    "catalog",
    "choose",
    "get",
]
