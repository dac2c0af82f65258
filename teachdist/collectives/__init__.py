"""The algorithms of collective communication, written to be read: plain Python, no torch.

Start with `ring.py`; the vocabulary is in `schedule.py`.
"""

from teachdist.collectives.algorithm import Algorithm, AlgorithmError
from teachdist.collectives.catalog import catalog, get
from teachdist.collectives.checker.own import Refused, algorithm, ensure_proven
from teachdist.collectives.checker.prove import CounterExample, Proof, prove
from teachdist.collectives.draw import draw_svg
from teachdist.collectives.exercises.exercises import Exercise, Verdict, exercise, exercises
from teachdist.collectives.exercises.results import Report, report
from teachdist.collectives.frames import describe_rounds, frames
from teachdist.collectives.model.choose import Choice, choose
from teachdist.collectives.model.cost import Cost, cost
from teachdist.collectives.model.formula import LowerBound, lower_bound
from teachdist.collectives.model.topology import PRESETS, Topology
from teachdist.collectives.plot import curves, plot_cost
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
    "curves",
    "describe_rounds",
    "draw_svg",
    "ensure_proven",
    "exercise",
    "exercises",
    "frames",
    "get",
    "lower_bound",
    "plot_cost",
    "prove",
    "report",
]
