"""Predicted beside measured: five programs rehearsed, and run on real ranks of this machine.

    teachdist bench --predicted                # 2 and 4 ranks, ours and gloo
    teachdist bench --predicted --ranks 2 --backends teachdist

First two ranks measure the machine under each backend (`calibrated`); then each program is
rehearsed on it, with the recorded clock, and run on real ranks. Both tell the median of their
steps' times, by time.perf_counter(), on the rank that took longest. Of several real runs the median
counts, and their range is shown.

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


def computing():
    """Median seconds of a fixed piece of computing, on one thread, without communication."""
    import torch
    from torch import nn

    torch.set_num_threads(1)
    net = nn.Sequential(*[nn.Linear(512, 512) for _ in range(6)])
    inputs, seconds = torch.randn(32, 512), []
    for _ in range(40):
        began = time.perf_counter()
        net(inputs).square().mean().backward()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds[10:])


def collective(op, nbytes):
    """Median seconds of a collective that is asked for with `nbytes` in all."""
    import torch
    import torch.distributed as dist

    whole = torch.ones(nbytes // 4)
    part = torch.ones(whole.numel() // dist.get_world_size())
    calls = {
        "all_reduce": lambda: dist.all_reduce(whole),
        "broadcast": lambda: dist.broadcast(whole, 0),
        "all_gather": lambda: dist.all_gather_single(whole, part),
        "reduce_scatter": lambda: dist.reduce_scatter_single(part, whole),
    }
    seconds = []
    for _ in range(30):
        dist.barrier()
        began = time.perf_counter()
        calls[op]()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds[10:])


OPS = ("all_reduce", "broadcast", "all_gather", "reduce_scatter")


def calibrated(backend):
    """This box as a `Machine`, for ranks under a backend: what two ranks of it measure.

    Links by ping-pong; what a collective takes beyond its messages, and how much longer those take
    in it, by a small and a large one of each kind; how much slower two ranks compute than one.
    """
    from dataclasses import replace

    from teachdist.bench.calibrate import combining, ping_pong
    from teachdist.collectives import Topology
    from teachdist.notebook import Cluster
    from teachdist.rehearse.machine import this_box
    from teachdist.rehearse.prices import Prices

    small, large = 8, 1 << 20
    with Cluster(2, backend) as cluster:
        samples = cluster.run(ping_pong)[0]
        gamma = cluster.run(combining)[0]
        beside = statistics.median(cluster.run(computing))
        took = {
            op: [max(cluster.run(collective, op, size)) for size in (small, large)] for op in OPS
        }
    with Cluster(1) as cluster:
        alone = cluster.run(computing)[0]
    shared = backend == "teachdist"
    name = f"here, {backend}"
    made = this_box(Topology.measured(samples, gamma=gamma, name=name, shared=shared))
    prices = Prices(made, 2)
    found = {}
    for op, (least, most) in took.items():
        low, high = (prices.seconds(op, "", size, 2, (0, 0)) for size in (small, large))
        slower = max(0.1, (most - least) / (high - low))
        found[op] = max(0.0, least - slower * low), slower
    return replace(made, factor=max(1.0, beside / alone), collectives=found)


def measured(names, ranks, backend):
    """{program: seconds of each run} on real ranks."""
    from teachdist.notebook import Cluster

    found = {name: [] for name in names}
    with Cluster(ranks, backend) as cluster:
        for _ in range(RUNS):
            for name in names:
                found[name].append(max(cluster.run(timed, name)))
    return found


def predicted(name, ranks, machine):
    """Seconds of a step by rehearsal."""
    from teachdist import rehearse

    answer = rehearse(timed, name, ranks=ranks, topology=machine, clock="recorded")
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
        machine = calibrated(backend)
        for ranks in given.ranks:
            real = measured(given.programs, ranks, backend)
            for name in given.programs:
                seconds, runs = predicted(name, ranks, machine), real[name]
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
