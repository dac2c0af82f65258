"""Closed formulas and lower bounds: what the literature says that a collective costs.

The idea: a formula stands once, as text, beside its algorithm, for example

    2*(p-1)*a + 2*n*(p-1)/p*b + n*(p-1)/p*g

and is both shown and computed from there. The names in it:

    p    number of ranks                       n       bytes (see cost.py for each collective)
    a    alpha, seconds per message            a2, b2  the same between hosts
    b    beta, seconds per byte                q, m    number of hosts; ranks on the fullest one
    g    gamma, seconds per byte combined      k       number of chunks
    P    largest power of two that is <= p     fold    1 if p is no power of two, otherwise 0
    lg   logarithm to base 2                   powers  powers(P): the powers of two below P

A formula that begins with "<=" is an upper bound. A formula without a2 and b2 knows nothing of
hosts; when ranks are on several, it is given the prices between hosts. All are for messages through
one port per rank; what shared memory changes (`shared_memory.py`) is not in them.

Source of the lower bounds: Chan, Heimlich, Purkayastha, van de Geijn, "Collective communication:
theory, practice, and experience" (2007), for one port per rank, full duplex. With shared memory
one round may be enough, as everybody can read what everybody has written; what counts is how much
one rank must write and copy. (In an all-reduce it must write each byte once: its own contribution,
or, if nobody else adds that up, the sum.)
"""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import NamedTuple

from teachdist.collectives.algorithm import Algorithm
from teachdist.collectives.model.topology import Price, Topology, one_price
from teachdist.collectives.powers import distances, largest_power
from teachdist.collectives.schedule import definition_of


def closed_form(
    algorithm: Algorithm, nbytes: float, ranks: int, topology: Topology, hosts: tuple[int, ...]
) -> float | None:
    """The value of the algorithm's formula in seconds; None if it has none."""
    if algorithm.formula is None:
        return None
    if ranks == 1:
        return 0.0
    between = topology.alpha_between, topology.beta_between
    inside = topology.alpha, topology.beta
    if "a2" not in algorithm.formula:
        price = one_price(topology, hosts)
        inside = (price.alpha, price.beta) if price else between
    names = {
        "n": nbytes,
        "p": ranks,
        "P": largest_power(ranks),
        "fold": int(largest_power(ranks) != ranks),
        "k": algorithm.chunks(ranks),
        "q": len(set(hosts)),
        "m": max(Counter(hosts).values()),
        "a": inside[0],
        "b": inside[1],
        "a2": between[0],
        "b2": between[1],
        "g": topology.gamma,
        "lg": math.log2,
        "ceil": math.ceil,
        "powers": distances,
        "sum": sum,
        "min": min,
        "max": max,
        "range": range,
    }
    expression = algorithm.formula.removeprefix("<=").strip()
    return float(eval(expression, {"__builtins__": {}, **names}))


def pretty(formula: str) -> str:
    """The formula as one writes it on paper."""
    text = formula.replace("*", " ").replace("<=", "at most").replace("ceil(lg(p))", "⌈lg p⌉")
    text = re.sub(r"\blg\((\w)\)", r"lg \1", text)
    for name, letter in (("a", "α"), ("b", "β"), ("g", "γ"), ("a2", "α₂"), ("b2", "β₂")):
        text = re.sub(rf"\b{name}\b", letter, text)
    return re.sub(r" +", " ", text)


class LowerBound(NamedTuple):
    """No algorithm for this collective can do with less of each; in seconds."""

    latency: float
    transfer: float
    combining: float

    @property
    def seconds(self) -> float:
        """No algorithm is faster than the largest of the three."""
        return max(self)


# op -> (bytes that some port must carry, bytes that some rank must combine), per byte of n
_LEAST = {
    "all_reduce": (lambda p: 2 * (p - 1) / p, lambda p: (p - 1) / p),
    "reduce": (lambda p: 1.0, lambda p: (p - 1) / p),
    "broadcast": (lambda p: 1.0, lambda p: 0.0),
    "all_gather": (lambda p: (p - 1) / p, lambda p: 0.0),
    "reduce_scatter": (lambda p: (p - 1) / p, lambda p: (p - 1) / p),
    "gather": (lambda p: (p - 1) / p, lambda p: 0.0),
    "scatter": (lambda p: (p - 1) / p, lambda p: 0.0),
    "all_to_all": (lambda p: (p - 1) / p, lambda p: 0.0),
    "barrier": (lambda p: 0.0, lambda p: 0.0),
}
# op -> bytes that some rank must write and copy in shared memory, where that differs
_LEAST_SHARED = {
    "all_reduce": lambda p: 1.0,
    "all_gather": lambda p: 1.0,
    "all_to_all": lambda p: 2 * (p - 1) / p,
}


def lower_bound(op: str, nbytes: float, ranks: int, topology: Topology) -> LowerBound:
    """The least latency, transfer and combining for `op`, each taken alone, in seconds.

    Prices are those of the topology's own placement; where links differ, the lower ones, so it
    holds for any placement on its hosts.
    """
    definition_of(op)
    if ranks == 1:
        return LowerBound(0.0, 0.0, 0.0)
    price = one_price(topology, topology.hosts(ranks)) or Price(
        min(topology.alpha, topology.alpha_between),
        min(topology.beta, topology.beta_between),
        topology.shared,
    )
    transfer, combining = _LEAST[op]
    rounds = 1 if price.shared else math.ceil(math.log2(ranks))
    if price.shared:
        transfer = _LEAST_SHARED.get(op, transfer)
    return LowerBound(
        rounds * price.alpha,
        transfer(ranks) * nbytes * price.beta,
        combining(ranks) * nbytes * topology.gamma,
    )
