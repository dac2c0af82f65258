"""What each rank does: blocks of calls, by turns on gloo and on teachdist."""

import multiprocessing
import os
import statistics
import threading
import time
from datetime import timedelta
from functools import partial

import torch
import torch.distributed as dist

from teachdist.bench.cases import CASES

BLOCKS = 9
WITHOUT_SIZE = {"barrier"}


def rank_main(rank, size, port, plan, results):
    """A process of the benchmark: rank `rank` of `size`; rank 0 puts rows into `results`."""
    import teachdist.backend  # noqa: F401  registers the backend

    threading.Thread(target=end_with_parent, daemon=True).start()
    dist.init_process_group(
        "gloo",
        init_method=f"tcp://127.0.0.1:{port}",
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=60),
    )
    groups = {"gloo": dist.group.WORLD}
    for kind in plan["links"]:
        os.environ["TEACHDIST_SHM"] = "1" if kind == "shm" else "0"
        groups[kind] = dist.new_group(backend="teachdist", timeout=timedelta(seconds=60))
        dist.barrier(group=groups[kind])
    copy = copy_limit(rank)
    for threads in plan["threads"]:
        torch.set_num_threads(threads)
        for op in plan["ops"]:
            for nbytes in [0] if op in WITHOUT_SIZE else plan["sizes"]:
                row = measure(op, nbytes, rank, size, groups, plan["seconds"])
                row |= {"ranks": size, "threads": threads, "copy": copy}
                if rank == 0:
                    results.put(row)
    if rank == 0:
        results.put(None)
    dist.destroy_process_group()


def end_with_parent():
    """Nobody reads what is measured once the command has been killed, so nothing goes on."""
    multiprocessing.parent_process().join()
    os._exit(1)


def copy_limit(rank):
    """Bytes per second of a plain copy of 64 MB, rank 0 alone."""
    x, y = torch.ones(1 << 24), torch.ones(1 << 24)
    best = 0.0
    if rank == 0:
        for _ in range(5):
            began = time.perf_counter()
            y.copy_(x)
            best = max(best, x.nbytes / (time.perf_counter() - began))
    dist.barrier()
    return best


def measure(op, nbytes, rank, size, groups, seconds):
    """One row: the times of a case on every group, in seconds per call."""
    case = CASES[op](max(1, nbytes // 4), rank, size)
    for group in groups.values():
        alone(case.fresh)
        case.call(group)
        alone(case.check)
        case.call(group)
    jobs = {name: partial(case.call, group) for name, group in groups.items()}
    if case.alone is not None:
        jobs["alone"] = case.alone
    counts = {name: calls_per_block(job, seconds * case.stretch) for name, job in jobs.items()}
    times = {name: [] for name in jobs}
    for _ in range(BLOCKS):
        for name, job in jobs.items():
            alone(case.fresh)
            dist.barrier()
            began = time.perf_counter()
            for _ in range(counts[name]):
                job()
            spent = torch.tensor(time.perf_counter() - began, dtype=torch.float64)
            dist.all_reduce(spent, dist.ReduceOp.MAX)
            times[name].append(spent.item() / counts[name])
    found = {name: statistics.median(spent) for name, spent in times.items()}
    without = found.pop("alone", None)
    return {
        "op": op,
        "nbytes": nbytes,
        "calls": {name: count * BLOCKS for name, count in counts.items()},
        "moved": nbytes * case.share,
        "seconds": found,
        "alone": without,
        "blocks": times,
    }


def alone(job):
    """Do it in one thread: torch's others would go on spinning, 8 ms of what is measured next."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    job()
    torch.set_num_threads(threads)


def calls_per_block(job, seconds):
    """How many calls fill a block; the same on all ranks.

    Blocks last as long for every backend: ranks do not leave the barrier at one moment, and in a
    shorter block that would weigh more.
    """
    dist.barrier()
    began = time.perf_counter()
    for _ in range(3):
        job()
    spent = torch.tensor(time.perf_counter() - began, dtype=torch.float64)
    dist.all_reduce(spent, dist.ReduceOp.MAX)
    return max(1, min(5000, int(seconds * 3 / spent.item())))
