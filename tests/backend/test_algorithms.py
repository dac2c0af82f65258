"""Every algorithm of the catalogue really runs, on data of one segment and of several."""

import pytest
import torch
import torch.distributed as dist
from threaded import opts_of, threaded
from values import bits

from teachdist.backend import use
from teachdist.backend.execution import selection
from teachdist.collectives import catalog, get
from teachdist.links.collective import shm

SMALL, LARGE = 37, 20_003  # elements per rank: one segment, and several that do not end evenly
SUM = {"reduceOp": dist.ReduceOp.SUM}


def data(rank, numel, offset=0):
    return torch.arange(offset, offset + numel, dtype=torch.float32) % 1024 + rank


def all_reduce(backend, rank, size, numel, root):
    tensor = data(rank, numel)
    backend.allreduce([tensor], opts_of("AllreduceOptions", False, **SUM)).wait()
    return [tensor], [sum(data(r, numel) for r in range(size))]


def reduce(backend, rank, size, numel, root):
    tensor = data(rank, numel)
    backend.reduce([tensor], opts_of("ReduceOptions", False, rootRank=root, **SUM)).wait()
    wanted = sum(data(r, numel) for r in range(size)) if rank == root else data(rank, numel)
    return [tensor], [wanted]


def broadcast(backend, rank, size, numel, root):
    tensor = data(rank, numel)
    backend.broadcast([tensor], opts_of("BroadcastOptions", False, rootRank=root)).wait()
    return [tensor], [data(root, numel)]


def all_gather(backend, rank, size, numel, root):
    outputs = [torch.zeros(numel) for _ in range(size)]
    backend.allgather([outputs], [data(rank, numel)], opts_of("AllgatherOptions", False)).wait()
    return outputs, [data(r, numel) for r in range(size)]


def all_gather_uneven(backend, rank, size, numel, root):
    counts = [numel * r // size for r in range(size)]
    outputs = [torch.zeros(n) for n in counts]
    own = data(rank, counts[rank])
    backend.allgather([outputs], [own], opts_of("AllgatherOptions", False)).wait()
    return outputs, [data(r, n) for r, n in enumerate(counts)]


def reduce_scatter(backend, rank, size, numel, root):
    output = torch.zeros(numel)
    inputs = [data(rank, numel, d) for d in range(size)]
    backend.reduce_scatter([output], [inputs], opts_of("ReduceScatterOptions", False, **SUM)).wait()
    return [output], [sum(data(r, numel, rank) for r in range(size))]


def reduce_scatter_uneven(backend, rank, size, numel, root):
    counts = [numel * (d + 1) // size for d in range(size)]
    output = torch.zeros(counts[rank])
    inputs = [data(rank, n, d) for d, n in enumerate(counts)]
    backend.reduce_scatter([output], [inputs], opts_of("ReduceScatterOptions", False, **SUM)).wait()
    return [output], [sum(data(r, counts[rank], rank) for r in range(size))]


def gather(backend, rank, size, numel, root):
    outputs = [torch.zeros(numel) for _ in range(size)] if rank == root else []
    opts = opts_of("GatherOptions", False, rootRank=root)
    backend.gather([outputs] if outputs else [], [data(rank, numel)], opts).wait()
    return outputs, [data(r, numel) for r in range(size)] if rank == root else []


def scatter(backend, rank, size, numel, root):
    output = torch.zeros(numel)
    inputs = [[data(root, numel, d) for d in range(size)]] if rank == root else []
    backend.scatter([output], inputs, opts_of("ScatterOptions", False, rootRank=root)).wait()
    return [output], [data(root, numel, rank)]


def all_to_all(backend, rank, size, numel, root):
    output, given = torch.zeros(numel * size), data(rank, numel * size)
    backend.all_to_all_single(output, given, [], [], opts_of("AllToAllOptions", False)).wait()
    wanted = [data(s, numel * size)[rank * numel : (rank + 1) * numel] for s in range(size)]
    return [output], [torch.cat(wanted)]


def all_to_all_uneven(backend, rank, size, numel, root):
    """Ranks send very different amounts, so they would cut them into segments differently."""
    counts = [[numel * ((s + 2 * d) % 3) // 2 for d in range(size)] for s in range(size)]
    outputs = [torch.zeros(counts[s][rank]) for s in range(size)]
    inputs = [data(rank, counts[rank][d], d) for d in range(size)]
    backend.alltoall(outputs, inputs, opts_of("AllToAllOptions", False)).wait()
    return outputs, [data(s, counts[s][rank], rank) for s in range(size)]


def barrier(backend, rank, size, numel, root):
    backend.barrier(opts_of("BarrierOptions", False)).wait()
    return [], []


FORMS = {
    "all_reduce": [all_reduce],
    "reduce": [reduce],
    "broadcast": [broadcast],
    "all_gather": [all_gather, all_gather_uneven],
    "reduce_scatter": [reduce_scatter, reduce_scatter_uneven],
    "gather": [gather],
    "scatter": [scatter],
    "all_to_all": [all_to_all, all_to_all_uneven],
    "barrier": [barrier],
}
ALGORITHMS = [(op, name) for op, names in catalog().items() for name in names]


@pytest.fixture(autouse=True)
def short_segments(monkeypatch):
    """So short that LARGE has several of them, with every algorithm and number of ranks."""
    monkeypatch.setattr(selection, "SEGMENT", 4096)
    for module in (selection, shm):
        monkeypatch.setattr(module, "WIDE_SEGMENT", 8192)


@pytest.mark.parametrize(("op", "name"), ALGORITHMS)
def test_runs(op, name):
    for size in (size for size in (2, 3, 4, 5, 8) if get(op, name).serves(size)):

        def job(backend, rank, size=size):
            for form in FORMS[op]:
                for numel in (SMALL, LARGE if size < 5 else SMALL):
                    for root in {0, size - 1}:
                        got, wanted = form(backend, rank, size, numel, root)
                        for tensor, right in zip(got, wanted, strict=True):
                            assert bits(tensor) == bits(right), (form.__name__, size, numel)

        with use(**{op: name}):
            threaded(size).run(job)


def test_unequal_parts_through_others():
    """Bruck passes parts on through ranks that are told first how large they are."""

    def job(backend, rank):
        for numel in (SMALL, LARGE):
            got, wanted = all_to_all_uneven(backend, rank, 4, numel, 0)
            for tensor, right in zip(got, wanted, strict=True):
                assert bits(tensor) == bits(right)

    with use(all_to_all="bruck"):
        threaded(4).run(job)
