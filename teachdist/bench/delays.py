"""Is the right rank blamed? 200 delays are put into programs, and what `blame` says is compared.

    teachdist bench --delays                    # 160 on rehearsed ranks, 40 on real ones
    teachdist bench --delays --real 0 --seed 7

Each trial draws a program (a training loop that overlaps, a relay of messages, ranks in two groups
one above the other), a number of ranks, the late rank, in which steps it is late, and by how much.
A trial is right if the first reason names that rank, and near if the milliseconds that it names are
within a tenth (on real ranks: or within a millisecond, since others use the processors, too).

At the end what recording costs: a step of DistributedDataParallel with and without a trace, taken
in turns on the same ranks.
"""

import argparse
import json
import random
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

PROGRAMS = ("training", "relay", "two groups")
STEPS, WORK = 12, 0.008


def training(late, steps, seconds):
    """Compute, reduce, and reduce again while computing."""
    for step in range(STEPS):
        time.sleep(WORK)
        _late(late, step in steps, seconds)
        dist.all_reduce(torch.ones(1000))
        handle = dist.all_reduce(torch.ones(500), async_op=True)
        time.sleep(WORK / 2)
        handle.wait()


def relay(late, steps, seconds):
    """Take from the rank before, compute, hand on to the next, once around."""
    rank, size = dist.get_rank(), dist.get_world_size()
    value = torch.ones(100)
    for step in range(STEPS):
        if rank:
            dist.recv(value, rank - 1)
        time.sleep(WORK / 4)
        _late(late, step in steps, seconds)
        dist.send(value, (rank + 1) % size)
        if not rank:
            dist.recv(value, size - 1)
        dist.barrier()


def two_groups(late, steps, seconds):
    """Neighbours reduce in pairs, then all: who is late in a pair delays it before all."""
    rank, size = dist.get_rank(), dist.get_world_size()
    pairs = [dist.new_group([a, a + 1]) for a in range(0, size - 1, 2)]
    for step in range(STEPS):
        time.sleep(WORK)
        _late(late, step in steps, seconds)
        if rank // 2 < len(pairs):
            dist.all_reduce(torch.ones(10), group=pairs[rank // 2])
        dist.all_reduce(torch.ones(10))


def _late(rank, now, seconds):
    if now and dist.get_rank() == rank:
        time.sleep(seconds)


def draw(random_numbers, ranks=(2, 3, 4, 8)):
    """A trial: (program, ranks, late rank, steps in which it is late, seconds)."""
    name = random_numbers.choice(PROGRAMS)
    size = random_numbers.choice([n for n in ranks if name != "two groups" or n % 2 == 0])
    first = random_numbers.randrange(STEPS - 3)
    every = random_numbers.choice([range(STEPS), range(first, STEPS), range(first, STEPS, 2)])
    seconds = random_numbers.choice([0.005, 0.01, 0.02, 0.04, 0.08])
    return name, size, random_numbers.randrange(size), tuple(every), seconds


def rehearsed(name, size, late, steps, seconds):
    """The `Blame` of a trial on virtual ranks."""
    from teachdist import rehearse

    return rehearse(_program(name), late, steps, seconds, ranks=size).blame()


def traced(name, late, steps, seconds):
    """The `Blame` of a trial, on one of several real ranks."""
    from teachdist import trace, tracing

    dist.barrier()
    with trace() as mine:
        _program(name)(late, steps, seconds)
    return tracing.gather(mine).blame()


def _program(name):
    return {"training": training, "relay": relay, "two groups": two_groups}[name]


def judge(blame, late, seconds, slack=0.0):
    """(whether the right rank is named, whether its milliseconds are near)."""
    if not blame.reasons:
        return False, False
    first = blame.reasons[0]
    off = abs(first.seconds - seconds)
    return first.rank == late, first.rank == late and off <= max(0.1 * seconds, slack)


def overhead(steps=60):
    """Seconds of a DDP step without and with a trace, medians taken in turns; for use on ranks."""
    from torch.nn.parallel import DistributedDataParallel

    from teachdist import trace

    torch.set_num_threads(1)
    layers = [torch.nn.Linear(512, 512) for _ in range(6)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers))
    data, taken = torch.randn(64, 512), ([], [])

    def step():
        began = time.perf_counter()
        model(data).sum().backward()
        return time.perf_counter() - began

    for number in range(steps):
        if number % 2:
            with trace(lines=True):
                taken[1].append(step())
        else:
            taken[0].append(step())
    return [statistics.median(times[5:]) for times in taken]


def main(arguments=None):
    """Run the benchmark; the exit status: 0 if the goals are met."""
    parser = argparse.ArgumentParser(prog="teachdist bench --delays", description=__doc__)
    parser.add_argument("--rehearsed", type=int, default=160, help="trials on virtual ranks (160)")
    parser.add_argument("--real", type=int, default=40, help="trials on real ranks (40)")
    parser.add_argument("--seed", type=int, default=1, help="of what is drawn (1)")
    parser.add_argument("--json", metavar="FILE", help="write what was found")
    given = parser.parse_args(arguments)
    numbers, found = random.Random(given.seed), {}
    for kind, count in (("rehearsed", given.rehearsed), ("real", given.real)):
        found[kind] = _trials(kind, count, numbers)
    if given.real:
        found["step"] = _overhead()
    if given.json:
        Path(given.json).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0 if all(_good(found[kind]) for kind in ("rehearsed", "real")) else 1


def _trials(kind, count, numbers):
    right = near = 0
    pools = _Pools()
    for _ in range(count):
        trial = draw(numbers, (2, 3, 4, 8) if kind == "rehearsed" else (2, 3, 4))
        name, size, late, steps, seconds = trial
        if kind == "rehearsed":
            blame, slack = rehearsed(*trial), 0.0
        else:
            blame, slack = pools.get(size).run(traced, name, late, steps, seconds)[0], 0.001
        named, close = judge(blame, late, seconds, slack)
        right, near = right + named, near + close
        if not close:
            print(f"    {kind}: {name}, {size} ranks, rank {late}, {seconds * 1e3:g} ms: {blame!r}")
    pools.close()
    if count:
        print(f"{kind}: right rank in {right} of {count}, milliseconds near in {near}")
    return {"trials": count, "right": right, "near": near}


def _overhead():
    pools = _Pools()
    plain, with_trace = pools.get(2).run(overhead)[0]
    pools.close()
    print(f"a DDP step of 2 ranks: {plain * 1e3:.2f} ms, traced {with_trace * 1e3:.2f} ms")
    return {"plain": plain, "traced": with_trace}


class _Pools:
    """Real ranks, made when first needed."""

    def __init__(self):
        self._made = {}

    def get(self, size):
        from teachdist.testing.pool import RankPool

        if size not in self._made:
            self._made[size] = RankPool(size, "teachdist")
        return self._made[size]

    def close(self):
        for pool in self._made.values():
            pool.close()


def _good(found):
    return found["right"] >= 0.98 * found["trials"]


if __name__ == "__main__":
    sys.exit(main())
