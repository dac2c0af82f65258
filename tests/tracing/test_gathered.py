"""Traces of all ranks come together on all ranks, under the numbers of the job."""

import torch
import torch.distributed as dist
from ranks import shared_pool

from teachdist.tracing import compare, gather, save_chrome, trace


def test_gathered_from_all_and_from_some(tmp_path):
    def job(path):
        some = dist.new_group([1, 2])
        rank = dist.get_rank()
        with trace() as record:
            dist.all_reduce(torch.ones(8))
            if rank > 0:
                dist.all_reduce(torch.ones(8), group=some)
        found = gather(record)
        if rank == 0:
            save_chrome(found, path)
        of_some = sorted(gather(record, some)) if rank > 0 else None
        dist.destroy_process_group(some)
        calls = {r: [c.rank for c in one.calls] for r, one in found.items()}
        return calls, of_some, len(compare(found).rows)

    path = tmp_path / "trace.json"
    whole = {0: [0], 1: [1, 0], 2: [2, 1]}  # ranks within the groups of the calls
    sides = shared_pool(3, "teachdist").run(job, path)
    assert sides == [(whole, None, 2), (whole, [1, 2], 2), (whole, [1, 2], 2)]
    assert path.stat().st_size > 1000
