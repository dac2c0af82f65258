"""Measure this machine's links: alpha, beta and gamma of the cost model.

Two ranks send a message back and forth at several sizes; half a round trip is one message, and a
line through (bytes, seconds) has alpha as its height and beta as its slope. gamma is the time to
combine a byte, measured on one rank with torch.add. The two ranks share this machine's memory, so
the topology says `shared`. The fastest of several tries counts: whatever else runs on the machine
can only make a try slower.

    teachdist calibrate                    # prints the numbers
    teachdist calibrate --out links.json   # keeps them: Topology.measured, TEACHDIST_TOPOLOGY

The file's numbers are used by `choose()` when the environment variable TEACHDIST_TOPOLOGY names it.
"""

import argparse
import json
import os
import time
from pathlib import Path

SIZES = (8, 1024, 16 * 1024, 256 * 1024, 1 << 20, 4 << 20)
TRIES = 5
COMBINED = 1 << 20  # elements for gamma


def ping_pong():
    """On each of two ranks: [(bytes, seconds of one message), ...], the fastest of the tries."""
    import torch
    import torch.distributed as dist

    rank = dist.get_rank()
    samples = []
    for size in SIZES:
        message = torch.zeros(size, dtype=torch.uint8)
        repeats = max(3, min(50, (1 << 22) // size))
        best = float("inf")
        for _ in range(TRIES):
            dist.barrier()
            began = time.perf_counter()
            for _ in range(repeats):
                if rank == 0:
                    dist.send(message, 1)
                    dist.recv(message, 1)
                else:
                    dist.recv(message, 0)
                    dist.send(message, 0)
            best = min(best, (time.perf_counter() - began) / repeats / 2)
        samples.append((size, best))
    return samples


def combining():
    """Seconds to combine one byte with torch.add, on one thread."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    a, b = torch.ones(COMBINED), torch.ones(COMBINED)
    best = float("inf")
    for _ in range(4 * TRIES):
        began = time.perf_counter()
        torch.add(a, b, out=a)
        best = min(best, time.perf_counter() - began)
    torch.set_num_threads(threads)
    return best / COMBINED / a.element_size()


def measure():
    """The `Topology` of this machine: two ranks of a cluster play ping-pong."""
    from teachdist.collectives import Topology
    from teachdist.notebook import Cluster

    with Cluster(2) as cluster:
        samples = cluster.run(ping_pong)[0]
        gamma = cluster.run(combining)[0]
    return Topology.measured(samples, gamma=gamma, name="measured", shared=True), samples


def save(topology, path):
    """Keep a topology as JSON; written whole or not at all."""
    path = Path(path)
    fields = {
        name: getattr(topology, name)
        for name in ("alpha", "beta", "gamma", "alpha_between", "beta_between", "name", "shared")
    }
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(fields, indent=2) + "\n")
    os.replace(part, path)


def main(argv=None):
    """The command `teachdist calibrate`."""
    parser = argparse.ArgumentParser(prog="teachdist calibrate", description=measure.__doc__)
    parser.add_argument("--out", help="write the numbers to this JSON file")
    arguments = parser.parse_args(argv)
    topology, samples = measure()
    say = print
    say("one message between two ranks of this machine")
    for size, seconds in samples:
        say(f"    {size:9,} bytes   {1e6 * seconds:9.1f} us   {size / seconds / 1e9:6.2f} GB/s")
    say(f"alpha  {1e6 * topology.alpha:.1f} us per message")
    say(f"beta   {1e9 * topology.beta:.3f} ns per byte, {1 / topology.beta / 1e9:.2f} GB/s")
    say(f"gamma  {1e9 * topology.gamma:.3f} ns per byte combined")
    if arguments.out:
        save(topology, arguments.out)
        say(f"written to {arguments.out}; use it: TEACHDIST_TOPOLOGY={arguments.out}")
    return 0
