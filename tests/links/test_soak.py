"""Tens of thousands of mixed operations on several groups at once: nothing grows.

Four ranks; two threads on each, with groups of their own, so that calls of different groups run at
the same time. Which operation comes next, on how much, and whether its handle is kept for a while,
a generator of random numbers says, with the same seed on all ranks of a group. Every answer is
checked.
"""

import contextlib
import gc
import os
import random
import threading
from pathlib import Path

import torch
import torch.distributed as dist
from calls import CALLS
from ranks import shared_pool
from traces import descriptors, memory, resident, threads

SIZE = 4
ROUNDS = 150  # per thread and group; two or three groups of each rank, two threads
# Far fewer than a rank's ten thousand operations: what may be kept besides the calls.
OBJECTS = 4000
GROWTH = 48 << 20  # bytes: the slack of the system's allocator, which large tensors go through
LENGTHS = (0, 1, 7, 64, 1000, 40_000)


def pending_sums(group, rank, size, n):
    """Several all_reduces under way at once, waited for in another order."""
    values = [torch.full((n,), float(rank + i)) for i in range(4)]
    works = [dist.all_reduce(x, group=group, async_op=True) for x in values]
    for work in reversed(works):
        work.wait()
    for i, x in enumerate(values):
        assert x.eq(size * (size - 1) / 2 + i * size).all()


def same_tensors_again(group, rank, size, n):
    """A training step: the same calls on the same tensors, again and again."""
    x = torch.zeros(n)
    for _ in range(25):
        x.fill_(1.0)
        dist.all_reduce(x, group=group)
        dist.broadcast(x, group_src=0, group=group)
        assert x.eq(size).all()


# name -> (call, how many operations of the package it is)
MIX = {name: (call, 1) for name, call in CALLS.items()}
MIX["send_recv"] = (CALLS["send_recv"], 2)
MIX["pending_sums"] = (pending_sums, 4)
MIX["same_tensors_again"] = (same_tensors_again, 50)


def stir(groups, rounds, seed):
    """Run `rounds` random calls on each of this rank's `groups`, by turns; how many operations."""
    dice = [random.Random(f"{seed} {ranks}") for ranks, _ in groups]
    count = 0
    for _ in range(rounds):
        for (ranks, group), die in zip(groups, dice, strict=True):
            call, operations = MIX[die.choice(list(MIX))]
            call(group, dist.get_rank(group), len(ranks), die.choice(LENGTHS))
            count += operations
    return count


def soak():
    from teachdist.backend import communicators

    rank = dist.get_rank()
    # A group of all ranks, one of a pair, and a ring of three; the same again for another thread.
    shapes = [list(range(SIZE)), [0, 1], [2, 3], [0, 1, 2]]
    by_thread = []
    for _ in range(2):
        made = [(tuple(ranks), dist.new_group(ranks, backend="teachdist")) for ranks in shapes]
        by_thread.append([(ranks, group) for ranks, group in made if rank in ranks])
    counts, errors = [], []

    def in_threads(rounds, seed):
        def job(number):
            try:
                counts.append(stir(by_thread[number], rounds, f"{seed} {number}"))
            except BaseException as error:
                errors.append(error)
                raise

        second = threading.Thread(target=job, args=(1,))
        second.start()
        with contextlib.suppress(BaseException):
            job(0)
        second.join()
        if errors:
            raise errors[0]
        for communicator in communicators():
            communicator.persistent.forget()  # else the numbers go up and down
        gc.collect()
        dist.barrier()
        return memory(), descriptors(), threads(), len(gc.get_objects()), resident()

    before = in_threads(ROUNDS, "warm up")
    after = in_threads(ROUNDS, "soak")
    for groups in by_thread:
        for _, group in groups:
            dist.destroy_process_group(group)
    return sum(counts), before, after, (memory(), threads())


def test_nothing_grows():
    alone = shared_pool(SIZE, "teachdist").run(lambda: (dist.barrier(), memory(), threads())[1:])
    found = shared_pool(SIZE, "teachdist").run(soak, timeout=150)
    total = sum(operations for operations, *_ in found)
    assert total > 30_000
    for (_, before, after, left), first in zip(found, alone, strict=True):
        *before, objects_before, resident_before = before
        *after, objects_after, resident_after = after
        assert after == before  # mapped memory, descriptors, threads
        assert objects_after - objects_before < OBJECTS
        assert resident_after - resident_before < GROWTH
        assert left == first
    here = Path("/dev/shm")
    names = os.listdir(here) if here.is_dir() else []
    assert not [name for name in names if "teachdist" in name]
