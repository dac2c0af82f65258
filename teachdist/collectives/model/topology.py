"""What a message costs, and where the ranks live: `Topology`.

The idea: sending n bytes takes alpha + n beta seconds: alpha, the latency, is paid per message,
beta per byte; combining n bytes takes n gamma. Three numbers describe a machine well enough to
choose between algorithms. Links between hosts have their own alpha and beta. Ports are full duplex
and each rank has its own.

    host 0             host 1
    [r0]--[r1]         [r2]--[r3]        inside:  alpha, beta
       '----------------'                between: alpha_between, beta_between

Ranks of one host may also have memory in common (`shared`). Then a rank writes each chunk once,
whoever wants it, and says so once; all others read it there, at the same time. `shared_memory.py`
has the details.

    through a port             shared memory
    r0 --c--> r1    a + nb     r0 writes c          a + nb
    r0 --c--> r2    a + nb     r1, r2, r3 read it   meanwhile
    r0 --c--> r3    a + nb

This is why one-round algorithms (`direct.py`) win on one host and lose on a network.

Source: Hockney, "The communication challenge for MPP: Intel Paragon and Meiko CS-2" (1994), for
alpha and beta; Thakur, Rabenseifner, Gropp (2005) for adding gamma.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple


@dataclass(frozen=True)
class Topology:
    """The price of links, and how many ranks share a host.

    `alpha` in seconds per message, `beta` in seconds per byte, `gamma` in seconds per byte
    combined; `alpha_between` and `beta_between` for links between hosts (as inside when not given).
    `ranks_per_host` None puts all ranks on one host. `shared`: inside a host, ranks read what the
    others have written to memory that they share.
    """

    alpha: float
    beta: float
    gamma: float = 0.0
    # None is replaced at once by the price inside, so that readers always find a float.
    alpha_between: float = None  # type: ignore[assignment]
    beta_between: float = None  # type: ignore[assignment]
    ranks_per_host: int | None = None
    name: str = "given"
    shared: bool = False

    def __post_init__(self):
        for field in ("alpha", "beta", "gamma", "alpha_between", "beta_between"):
            value = getattr(self, field)
            if value is None:
                object.__setattr__(self, field, getattr(self, field.removesuffix("_between")))
            elif value < 0:
                raise ValueError(f"{field}: seconds can't be negative, got {value}")
        if self.ranks_per_host is not None and self.ranks_per_host < 1:
            raise ValueError(f"ranks_per_host: must be at least 1, got {self.ranks_per_host}")

    def hosts(self, size: int) -> tuple[int, ...]:
        """The host of each of `size` ranks: hosts are filled one after the other."""
        per_host = self.ranks_per_host or size
        return tuple(rank // per_host for rank in range(size))

    @classmethod
    def preset(cls, name: str) -> Topology:
        """A topology by name; a ValueError lists the names."""
        if name not in PRESETS:
            raise ValueError(
                f"topology: there is no preset {name!r}; there are {', '.join(PRESETS)}"
            )
        return PRESETS[name]

    @classmethod
    def measured(
        cls,
        inside: Iterable[tuple[int, float]],
        between: Iterable[tuple[int, float]] | None = None,
        gamma: float = 0.0,
        ranks_per_host: int | None = None,
        name: str = "measured",
        shared: bool = False,
    ) -> Topology:
        """Fit alpha and beta to measured one-way times: pairs of (bytes, seconds)."""
        alpha, beta = fit(inside)
        alpha2, beta2 = (alpha, beta) if between is None else fit(between)
        return cls(alpha, beta, gamma, alpha2, beta2, ranks_per_host, name, shared)


def fit(samples: Iterable[tuple[int, float]]) -> tuple[float, float]:
    """The (alpha, beta) of a line through (bytes, seconds), least squares of the relative error.

    Relative, because otherwise the largest messages alone would decide and alpha be lost.
    """
    points = [(float(x), float(y)) for x, y in samples]
    if len({x for x, _ in points}) < 2 or any(y <= 0 for _, y in points):
        raise ValueError(
            "samples: a line needs measurements at two sizes at least, all longer than 0 s; got "
            f"{points}"
        )
    weights = [1 / (y * y) for _, y in points]
    total = sum(weights)
    mean_x = sum(w * x for w, (x, _) in zip(weights, points, strict=True)) / total
    mean_y = sum(w * y for w, (_, y) in zip(weights, points, strict=True)) / total
    covariance = sum(
        w * (x - mean_x) * (y - mean_y) for w, (x, y) in zip(weights, points, strict=True)
    )
    variance = sum(w * (x - mean_x) ** 2 for w, (x, _) in zip(weights, points, strict=True))
    beta = max(0.0, covariance / variance)
    return max(0.0, mean_y - beta * mean_x), beta


class Price(NamedTuple):
    """What links cost that are all alike: seconds per message, per byte; and whether shared."""

    alpha: float
    beta: float
    shared: bool


@lru_cache(maxsize=256)
def one_price(topology: Topology, hosts: tuple[int, ...]) -> Price | None:
    """The price of all links if they are all alike, otherwise None."""
    inside = Price(topology.alpha, topology.beta, topology.shared)
    between = Price(topology.alpha_between, topology.beta_between, False)
    count = len(set(hosts))
    if count == 1 or inside == between:
        return inside
    return between if count == len(hosts) else None


# Orders of magnitude to think with, not measurements of any one machine.
PRESETS = {
    made.name: made
    for made in (
        # Sockets between processes of one computer.
        Topology(30e-6, 1 / 1.5e9, 1 / 4e9, name="loopback"),
        # Shared memory between processes of one computer.
        Topology(20e-6, 1 / 5e9, 1 / 4e9, shared=True, name="shared_memory"),
        # One rank per computer, 10 Gbit/s Ethernet; shared memory where ranks do share a computer.
        Topology(20e-6, 1 / 5e9, 1 / 4e9, 40e-6, 1 / 1.2e9, 1, name="ethernet", shared=True),
        # Eight GPUs per host with fast links inside, one 400 Gbit/s network port per GPU.
        Topology(3e-6, 1 / 350e9, 1 / 1.5e12, 10e-6, 1 / 48e9, 8, name="gpu_cluster"),
    )
}
