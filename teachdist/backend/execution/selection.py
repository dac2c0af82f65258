"""Which algorithm a call runs by, chosen alike on all ranks.

Whoever is nearest decides: `use` around the call, `Options` of the group, the environment, and
last the cost model (`collectives/model/choose.py`). The model needs to know what messages cost, and
ranks that believe in different numbers would choose different algorithms and wait for messages
that nobody sends. So rank 0 leaves its numbers in the store when the group is made, and every
rank reads them when it first needs them: no rank waits for another, and all compute with the same.
In the same way all follow rank 0 in whether ranks of one host share memory.

TEACHDIST_TOPOLOGY names a preset ("shared_memory", "ethernet", ...) or a file that `teachdist
calibrate` wrote. Without it the placement decides (one host, or several), and whether rank 0 wants
shared memory.

The sizes of an all_to_all may differ between ranks, so its algorithm must not depend on them.
"""

import json
import os
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path

from teachdist.backend.execution.options import chosen_by_user
from teachdist.backend.execution.own_files import load_own_files
from teachdist.collectives import Topology, choose, get
from teachdist.collectives.checker.own import ensure_proven
from teachdist.collectives.model.topology import PRESETS
from teachdist.links.collective.exchange import SEGMENT, SOCKET_SEGMENT, WIDE_SEGMENT
from teachdist.links.rendezvous.peers import shm_wanted

_KEY = "believes"
ONE_WAY = {"broadcast", "reduce", "gather", "scatter"}  # some only give, some only take


class Selection:
    """Chooses for one group; made with the group, on every rank."""

    def __init__(self, store, rank, size, options):
        self._store = store
        self._size = size
        self._options = options
        self._topology = None
        load_own_files()
        if rank == 0:
            given = given_topology()
            believes = {"memory": shm_wanted(), "topology": given and asdict(given)}
            store.set(_KEY, json.dumps(believes))

    def algorithm(self, call, hosts):
        """The name of the algorithm for `call`; `hosts` has the host of each rank."""
        name = call.chosen
        if name is None:
            name = chosen_by_user(call.op, self._options)
        if not name:
            return self.choice(call, hosts).name
        made = get(call.op, name)
        if not made.serves(self._size):
            raise ValueError(
                f"{call.words}: algorithm {name!r} does not serve {self._size} ranks: it serves "
                f"{made.served}; choose another one"
            )
        ensure_proven(made, self._size, hosts)
        return name

    def choice(self, call, hosts):
        """What the cost model chooses, with its reason."""
        # In an all_to_all ranks may send different amounts and nobody knows the others': the
        # choice must not depend on them.
        nbytes = LARGE if call.op == "all_to_all" else call.nbytes
        return choose(call.op, nbytes, self._size, self.topology(hosts), hosts)

    def topology(self, hosts):
        """What messages cost, as rank 0 has said when the group was made."""
        if self._topology is None:
            given = self._believes["topology"]
            self._topology = Topology(**given) if given else by_placement(hosts, self.memory)
        return self._topology

    @property
    def memory(self):
        """Whether ranks of one host are to share memory, as rank 0 has said."""
        return self._believes["memory"]

    def segment(self, op, hosts):
        """Bytes that a rank publishes in one turn; fewer if that has to fit into shared memory.

        Where each rank has a host of its own there is none to share.
        """
        if not self.memory or len(set(hosts)) == self._size:
            return SOCKET_SEGMENT
        return SEGMENT if op in ONE_WAY else WIDE_SEGMENT

    @cached_property
    def _believes(self):
        return json.loads(self._store.get(_KEY))


LARGE = 1 << 26  # bytes at which an all_to_all sends every block straight to its reader


def by_placement(hosts, shared=True):
    """The preset for ranks on one host, or on several, that share memory or use sockets alone."""
    if len(set(hosts)) == 1:
        # Sockets of one host have no ports that work by themselves: its processors copy every
        # byte, as with shared memory, and detours of large data over other ranks only add copies.
        preset = Topology.preset("shared_memory" if shared else "loopback")
        return replace(preset, shared=True)
    return replace(Topology.preset("ethernet"), shared=shared)


def given_topology():
    """The topology that the environment names, or None."""
    name = os.environ.get("TEACHDIST_TOPOLOGY")
    if not name:
        return None
    if name in PRESETS:
        return PRESETS[name]
    try:
        return Topology(**json.loads(Path(name).read_text()))
    except OSError as error:
        raise ValueError(
            f"TEACHDIST_TOPOLOGY={name}: neither a preset ({', '.join(PRESETS)}) nor a file that "
            f"can be read: {error.strerror}"
        ) from error
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"TEACHDIST_TOPOLOGY={name}: not a file of `teachdist calibrate`: {error}"
        ) from error
