"""The algorithms of collective communication, written to be read: plain Python, no torch.

Start with `ring.py`; the vocabulary is in `schedule.py`.
"""

from teachdist.collectives.algorithm import Algorithm, AlgorithmError
from teachdist.collectives.catalog import catalog, get
from teachdist.collectives.checker.own import Refused, algorithm, ensure_proven
from teachdist.collectives.checker.prove import CounterExample, Proof, prove
from teachdist.collectives.exercises.exercises import Exercise, Verdict, exercise, exercises
from teachdist.collectives.exercises.results import Report, report
from teachdist.collectives.model.choose import Choice, choose
from teachdist.collectives.model.cost import Cost, cost
from teachdist.collectives.model.formula import LowerBound, lower_bound
from teachdist.collectives.model.topology import PRESETS, Topology
from teachdist.collectives.schedule import DEFINITIONS, Definition, Recv, Reduce, Send

# Importing a family enters its algorithms in the catalogue.
from teachdist.collectives import (  # noqa: F401  # isort: skip
    bruck,
    chain,
    direct,
    dissemination,
    double_tree,
    doubling,
    halving,
    hierarchical,
    linear,
    pairwise,
    ring,
    scatter_gather,
    tree,
)

__all__ = [
    "DEFINITIONS",
    "PRESETS",
    "Algorithm",
    "AlgorithmError",
    "Choice",
    "Cost",
    "CounterExample",
    "Definition",
    "Exercise",
    "LowerBound",
    "Proof",
    "Recv",
    "Reduce",
    "Refused",
    "Report",
    "Send",
    "Topology",
    "Verdict",
    "algorithm",
    "catalog",
    "choose",
    "cost",
    "ensure_proven",
    "exercise",
    "exercises",
    "get",
    "lower_bound",
    "prove",
    "report",
]
