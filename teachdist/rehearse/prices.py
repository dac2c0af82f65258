"""What communicating costs on the machine that is rehearsed, in seconds.

A collective costs what the cost model says of its algorithm (`collectives/model/cost.py`): the
user's, or the one that is cheapest there. A message costs alpha and bytes x beta, and needs the
sender's port to leave and the receiver's to arrive; ports may be shared by the ranks of a host.
"""

from dataclasses import replace
from functools import lru_cache

from teachdist.collectives import Send, catalog, cost, get
from teachdist.collectives.model.cost import bytes_per_chunk

ANCHORS = (1 << 10, 1 << 18, 1 << 26, 1 << 32)  # sizes in bytes at which the model is asked
FEW = 64  # ranks up to which every algorithm of the catalogue is asked
SLOW = {"direct", "two_shot", "linear", "chain", "scatter_ring"}  # to price, and there to run


class Prices:
    """The prices of one machine."""

    def __init__(self, machine, ranks):
        self._machine = machine
        self._crowd = machine.crowd(ranks)
        self._topology = _slowed(machine.topology, self._crowd)
        self._contention = machine.contention()
        self._out, self._in = {}, {}  # port -> when it is free
        self._known = {}

    # -- collectives -----------------------------------------------------------------------

    def collective(self, call, how, group):
        """Seconds of a collective once all ranks are there."""
        if group.size == 1:
            return 0.0
        layout = _layout(group.hosts)
        return self.seconds(call.op, how, call.nbytes, group.size, layout)

    def seconds(self, op, how, nbytes, size, layout):
        """The price of `op` by algorithm `how` ("" for the best) on ranks placed by `layout`."""
        model = self._best(op, how, nbytes, size, layout)[0]
        per_call, slower = self._machine.collectives.get(op, (0.0, 1.0))
        return self._crowd * per_call + slower * model

    def _best(self, op, how, nbytes, size, layout):
        """(seconds, name) of the cheapest algorithm."""
        key = op, how, nbytes, size, layout
        if key not in self._known:
            topology = _congested(self._topology, self._contention, len(set(layout)))
            names = (how,) if how else _candidates(op, size)
            self._known[key] = min(
                (_price(name, op, nbytes, size, layout, topology), name) for name in names
            )
        return self._known[key]

    def algorithm(self, call, how, group):
        """The name of the algorithm that a call is priced by."""
        return self._best(call.op, how, call.nbytes, group.size, _layout(group.hosts))[1]

    def volume(self, call, how, group):
        """Bytes that all ranks together send, (inside hosts, between them)."""
        if group.size == 1 or call.op == "barrier" or not call.nbytes:
            return 0.0, 0.0
        name = self.algorithm(call, how, group)
        inside, between = _chunks_sent(call.op, name, group.size, _layout(group.hosts))
        chunks = get(call.op, name).chunks(group.size)
        chunk = bytes_per_chunk(call.op, call.nbytes, group.size, chunks)
        return inside * chunk, between * chunk

    # -- messages --------------------------------------------------------------------------

    def message(self, source, dest, nbytes, now):
        """(when it leaves, when the sender is done, when it has arrived), posted at `now`."""
        if source == dest:
            return now, now, now
        topology, machine = self._topology, self._machine
        if machine.host(source) == machine.host(dest):
            latency, transfer = topology.alpha, nbytes * topology.beta
            out, into = ("inside", source), ("inside", dest)
        else:
            latency, transfer = topology.alpha_between, nbytes * topology.beta_between
            out, into = machine.port(source), machine.port(dest)
        left = max(now, self._out.get(out, 0.0))
        done = self._out[out] = left + latency + transfer
        arrived = self._in[into] = max(left, self._in.get(into, 0.0)) + latency + transfer
        return left, done, arrived


def _price(name, op, nbytes, size, layout, topology):
    """What one algorithm costs.

    Asking the model takes up to a second among a thousand ranks. But the price of a schedule is the
    longest of its paths, and each path costs latency + bytes x something. So the model is asked at
    few sizes, and the paths that were the longest there are followed to this one.
    """
    if op == "barrier":
        return _paths(name, op, 0, size, layout, topology)[0]
    below = max((anchor for anchor in ANCHORS if anchor <= nbytes), default=ANCHORS[0])
    above = min((anchor for anchor in ANCHORS if anchor >= nbytes), default=ANCHORS[-1])
    lines = [_paths(name, op, anchor, size, layout, topology) for anchor in {below, above}]
    return max(latency + nbytes * per_byte for latency, per_byte in lines)


@lru_cache(maxsize=4096)
def _paths(name, op, nbytes, size, layout, topology):
    """(latency, seconds per byte) of the longest path when `nbytes` are moved."""
    price = cost(name, op, nbytes, size, topology, hosts=layout)
    latency = price.latency
    if latency is None:  # too large to simulate: the formula
        latency = cost(name, op, 0, size, topology, hosts=layout).seconds
    return latency, (price.seconds - latency) / max(nbytes, 1)


def _slowed(topology, crowd):
    """Where ranks share processors, each message and each sum takes longer for all of them."""
    prices = ("alpha", "beta", "gamma", "alpha_between", "beta_between")
    return replace(topology, **{name: getattr(topology, name) * crowd for name in prices})


@lru_cache(maxsize=64)
def _congested(topology, contention, hosts):
    if contention == 1.0 or hosts == 1:
        return topology
    return replace(topology, beta_between=topology.beta_between * contention)


@lru_cache(maxsize=4096)
def _layout(hosts):
    """Hosts numbered from 0 in order of appearance: groups placed alike cost the same."""
    numbers = {}
    return tuple(numbers.setdefault(host, len(numbers)) for host in hosts)


@lru_cache(maxsize=256)
def _chunks_sent(op, name, size, layout):
    """Chunks that all ranks send, (inside hosts, between); of many ranks a few are asked."""
    made = get(op, name)
    asked = range(size) if size <= FEW else range(0, size, max(1, size // 16))
    counts = [0, 0]
    for rank in asked:
        for actions in made.steps(rank, size, 0, layout):
            for action in actions:
                if type(action) is Send:
                    counts[layout[rank] != layout[action.to]] += 1
    return tuple(count * size / len(asked) for count in counts)


@lru_cache(maxsize=256)
def _candidates(op, size):
    """The algorithms to choose from. In large worlds only those that are quick to price."""
    names = [n for n in catalog()[op] if get(op, n).builtin and get(op, n).serves(size)]
    if size > FEW:
        names = [n for n in names if n not in SLOW] or names
    return names
