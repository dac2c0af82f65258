"""Calls on the same tensors again: what was kept of the first must not depend on how it was made.

Every operation is called three times on the same tensors, synchronously, asynchronously and through
its future, while a mode of the calling thread changes from call to call. The definition is the
oracle.
"""

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from calls_again import MODES, OPS, WAYS
from ranks import on

HERE = str(Path(__file__).resolve().parents[1])


@pytest.mark.parametrize(("size", "numel"), [(2, 4), (3, 4), (2, 1 << 19)])
def test_same_tensors_again(size, numel):
    def job(ops, ways, modes, numel, here):
        import sys

        if here not in sys.path:
            sys.path.insert(0, here)
        from calls_again import again

        return [
            wrong
            for op in ops
            for way in ways
            for mode in modes
            for made_inside in (False, True)
            for wrong in again(op, way, mode, made_inside, numel)
        ]

    small = numel == 4  # large calls run in segments, and aren't kept
    ways, modes = (WAYS, list(MODES)) if small else (["sync", "async"], ["inference first"])
    assert on(size, job, OPS, ways, modes, numel, HERE) == [[]] * size


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_forms_that_are_bound_in_other_ways():
    def job(modes, here):
        import sys

        if here not in sys.path:
            sys.path.insert(0, here)
        from calls_again import otherwise

        return [w for mode in modes for inside in (False, True) for w in otherwise(mode, inside)]

    assert on(2, job, list(MODES), HERE) == [[]] * 2


def test_freed_and_made_anew_with_another_dtype():
    def job():
        answers = []
        for dtype in (torch.float32, torch.int32, torch.float32, torch.int64) * 3:
            x = torch.ones(16 // dtype.itemsize, dtype=dtype)
            dist.all_reduce(x)
            answers.append(x.tolist() == [2] * x.numel())
            del x
        return all(answers)

    assert on(2, job) == [True, True]
