"""Predicted beside measured: five programs rehearsed, and run on real ranks of this machine.

    teachdist bench --predicted                # 2 and 4 ranks, ours and gloo
    teachdist bench --predicted --ranks 2 --backends teachdist

First the links are measured, two ranks playing ping-pong, for each backend; then each program is
rehearsed on a machine with these links and this machine's processors, with the recorded clock, and
run on real ranks. Both tell the median of their steps' times, by time.perf_counter(), on the rank
that took longest. Of several real runs the median counts, and their range is shown.

This says what a prediction is worth on a machine whose links are known. It says nothing of GPUs.
"""

import argparse
import statistics
import sys
import time

STEPS, RUNS = 12, 3


def step_of(name):
    """What one step of a program does, as a function: for real ranks and virtual ones."""
    import torch
    import torch.distributed as dist
    from torch import nn

    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    width = 512
    layers = [nn.Linear(width, width) for _ in range(6)]
    inputs = torch.randn(32, width)
    if name == "all_reduce 1 MB":
        data = torch.ones(1 << 18)
        return lambda: dist.all_reduce(data)
    if name == "ring of 1 MB":
        out, into = torch.ones(1 << 18), torch.empty(1 << 18)

        def step():
            works = [dist.isend(out, (rank + 1) % size), dist.irecv(into, (rank - 1) % size)]
            for work in works:
                work.wait()

        return step
    mesh = dist.init_device_mesh("cpu", (size,))
    if name == "DDP":
        net = nn.parallel.DistributedDataParallel(nn.Sequential(*layers))
    elif name == "FSDP2":
        from torch.distributed.fsdp import fully_shard

        net = nn.Sequential(*[fully_shard(layer, mesh=mesh) for layer in layers])
    else:
        from torch.distributed.tensor.parallel import (
            ColwiseParallel,
            RowwiseParallel,
            parallelize_module,
        )

        plan = {str(n): (RowwiseParallel if n % 2 else ColwiseParallel)() for n in range(6)}
        net = parallelize_module(nn.Sequential(*layers), mesh, plan)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.001)

    def step():
        net(inputs).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


PROGRAMS = ("all_reduce 1 MB", "ring of 1 MB", "DDP", "FSDP2", "tensor parallel")


def timed(name):
    """On each rank: the median seconds of a step, after some that warm up."""
    import torch.distributed as dist

    step = step_of(name)
    for _ in range(3):
        step()
    seconds = []
    for _ in range(STEPS):
        dist.barrier()
        began = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def links(backend):
    """The Topology of this machine's ranks under a backend."""
    from teachdist.bench.calibrate import combining, ping_pong
    from teachdist.collectives import Topology
    from teachdist.notebook import Cluster

    with Cluster(2, backend) as cluster:
        samples = cluster.run(ping_pong)[0]
        gamma = cluster.run(combining)[0]
    shared = backend == "teachdist"
    return Topology.measured(samples, gamma=gamma, name=f"here, {backend}", shared=shared)


def measured(names, ranks, backend):
    """{program: seconds of each run} on real ranks."""
    from teachdist.notebook import Cluster

    found = {name: [] for name in names}
    with Cluster(ranks, backend) as cluster:
        for _ in range(RUNS):
            for name in names:
                found[name].append(max(cluster.run(timed, name)))
    return found


def predicted(name, ranks, topology):
    """Seconds of a step by rehearsal."""
    from teachdist import rehearse
    from teachdist.rehearse.machine import this_box

    answer = rehearse(timed, name, ranks=ranks, topology=this_box(topology), clock="recorded")
    return max(answer.results)


def main(argv=None):
    """The command `teachdist bench --predicted`."""
    parser = argparse.ArgumentParser(prog="teachdist bench --predicted", description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--backends", nargs="+", default=["teachdist", "gloo"])
    parser.add_argument("--programs", nargs="+", default=list(PROGRAMS), choices=PROGRAMS)
    given = parser.parse_args(argv)
    print(f"{'backend':10} ranks  {'program':16}  predicted   measured (its runs)           off by")
    off = []
    for backend in given.backends:
        topology = links(backend)
        for ranks in given.ranks:
            real = measured(given.programs, ranks, backend)
            for name in given.programs:
                seconds, runs = predicted(name, ranks, topology), real[name]
                middle = statistics.median(runs)
                off.append(seconds / middle - 1)
                print(
                    f"{backend:10} {ranks:5}  {name:16}  {1e3 * seconds:6.2f} ms   "
                    f"{1e3 * middle:6.2f} ms ({1e3 * min(runs):.2f} to {1e3 * max(runs):.2f})"
                    f"{'':8}{off[-1]:+.0%}",
                    flush=True,
                )
    middle = statistics.median(abs(one) for one in off)
    print(f"off by {middle:.0%} in the median, by {max(map(abs, off)):.0%} at most")
    return 0


if __name__ == "__main__":
    sys.exit(main())
