"""The machine that is rehearsed: hosts, links, processors; by name, in a line, or measured.

    "nvlink"                      one host of 8 GPUs
    "32 hosts x 8"                hosts of 8 GPUs, joined by InfiniBand
    "16 hosts x 4, ethernet"      the same with other links
    "links.json"                  this box, as `teachdist calibrate --out links.json` measured it
    Topology(...)                 one's own

Alpha and beta are per message and direction. Sources of the presets, all of them the makers' own
figures of peak rates, of which about four fifths are reached by large messages:

- nvlink: NVIDIA H100 data sheet, 900 GB/s per GPU in both directions, so 450 in one.
- infiniband: ConnectX-7, 400 Gbit/s a port, one port for each GPU (NVIDIA DGX H100 user guide);
  latency between hosts from the OSU benchmarks as vendors publish them, about 5 us with a GPU.
- ethernet: one port of 100 Gbit/s for a whole host, through the kernel's TCP; 30 us.
- loopback, shared_memory: `teachdist.Topology`'s own, for processes of one computer.

Nobody has compared a rehearsal with such machines yet. What they are good for is *which is better*.
"""

import json
import os
import re
from dataclasses import dataclass, field, replace
from pathlib import Path

from teachdist.collectives import Topology
from teachdist.collectives.model.topology import PRESETS as OTHERS

_REACHED = 0.8


@dataclass(frozen=True)
class Machine:
    """A topology, and what it does not say.

    ports: network ports of a host, None for one per rank. factor: how much longer computing takes
    there than here. processors: of a host, if they do both, computing and communicating, for all of
    its ranks, as without GPUs; then nothing is hidden behind anything (`crowd`, `Prices`).
    collectives: {name: (seconds that a backend takes for each beside its messages, how much longer
    than by the model those take under it)}; `bench/predicted.py` measures them.
    """

    topology: Topology
    ports: int | None = None
    factor: float = 1.0
    processors: int | None = None
    collectives: dict = field(default_factory=dict, hash=False)

    def host(self, rank):
        """The host of a rank."""
        per_host = self.topology.ranks_per_host
        return rank // per_host if per_host else 0

    def port(self, rank):
        """The network port that a rank uses, as (host, number)."""
        per_host = self.topology.ranks_per_host
        if self.ports is None or not per_host:
            return ("rank", rank)
        return self.host(rank), rank % per_host % self.ports

    def crowd(self, ranks):
        """How much longer everything takes because more ranks than processors are at it.

        Ranks do the same at about the same time, so all of a host compete.
        """
        if self.processors is None:
            return 1.0
        return max(1.0, min(ranks, self.topology.ranks_per_host or ranks) / self.processors)

    def contention(self):
        """How many ranks share a network port."""
        per_host = self.topology.ranks_per_host
        if self.ports is None or not per_host:
            return 1.0
        return max(1.0, per_host / self.ports)


def _gpus(name, alpha_between, port, ports, hosts=8):
    nvlink = 450e9 * _REACHED
    return Machine(
        Topology(3e-6, 1 / nvlink, 1 / 1.5e12, alpha_between, 1 / (port * _REACHED), hosts, name),
        ports,
    )


PRESETS = {
    "nvlink": _gpus("nvlink", 3e-6, 450e9, None, None),
    "infiniband": _gpus("infiniband", 5e-6, 50e9, 8),
    "ethernet": _gpus("ethernet", 30e-6, 12.5e9, 1),
    **{name: Machine(OTHERS[name]) for name in ("loopback", "shared_memory")},
}


def this_box(topology):
    """The machine that this process runs on, with the links that `teachdist calibrate` measured."""
    return Machine(topology, processors=os.cpu_count())


_LINE = re.compile(r"\s*(\d+)\s*hosts?\s*x\s*(\d+)\s*(?:,\s*(\S+)\s*)?$")


def machine(given, ranks):
    """The `Machine` for `ranks` ranks from what the user gave.

    Raises ValueError if it names nothing, or has not as many places as ranks.
    """
    if isinstance(given, Machine):
        return given
    if isinstance(given, Topology):
        return Machine(given)
    if given is None:
        return PRESETS["nvlink" if ranks <= 8 else "infiniband"]
    if found := _LINE.match(given):
        hosts, per_host, links = int(found[1]), int(found[2]), found[3] or "infiniband"
        if links not in PRESETS:
            raise ValueError(f"topology: no links {links!r}; there are {', '.join(PRESETS)}")
        if hosts * per_host != ranks:
            raise ValueError(
                f'topology: "{given}" has {hosts * per_host} places, but there are {ranks} ranks'
            )
        made = PRESETS[links]
        named = f"{hosts} hosts x {per_host}, {links}"
        return replace(made, topology=replace(made.topology, ranks_per_host=per_host, name=named))
    if given in PRESETS:
        return PRESETS[given]
    if Path(given).is_file():
        return this_box(Topology(**json.loads(Path(given).read_text())))
    raise ValueError(
        f'topology: {given!r} is neither "HOSTS hosts x RANKS", nor a file of `teachdist '
        f"calibrate`, nor one of {', '.join(PRESETS)}"
    )
