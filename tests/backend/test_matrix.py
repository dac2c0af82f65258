"""Every collective against its definition: dtype x reduce op x shape x layout x root x ranks.

Ranks are threads, so a case takes a millisecond. Each test runs a whole plane of the matrix on all
ranks at once; a rank that finds a wrong result names the case.
"""

import itertools

import pytest
import torch
import torch.distributed as dist
from threaded import opts_of, threaded
from values import DTYPES, FLOAT8, LAYOUTS, SHAPES, bits, blank, defined, make, reduced, same

pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf")
REDUCE = ["SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "AVG"]
SIZES = [1, 2, 3, 4, 5, 8]
by_size = pytest.mark.parametrize("size", SIZES)
FEW = [torch.bool, torch.int64, torch.float32, torch.bfloat16, torch.complex64, FLOAT8[0]]


def dtypes_for(size):
    """All dtypes on few ranks; with more ranks only the kinds that differ in how they move."""
    return DTYPES if size <= 3 else FEW


def cases(*axes):
    """All combinations; layout and mode go round, so that each meets every dtype and shape."""
    turns = itertools.cycle(itertools.product(LAYOUTS, [False, True]))
    for case, (layout, asynchronous) in zip(itertools.product(*axes), turns, strict=False):
        yield *case, layout, asynchronous


def reductions(dtypes):
    return [(d, name) for d in dtypes for name in REDUCE if defined(name, d)]


def inputs(size, shape, dtype, layout, seed=0):
    return [make(shape, dtype, layout, seed + rank) for rank in range(size)]


def operation(name):
    return getattr(dist.ReduceOp, name)


def expect(tensor, wanted, name, *case):
    """Bit by bit, except where every step rounds: averages of fractions, arithmetic of float8."""
    dtype = wanted.dtype
    fractions = dtype.is_floating_point or dtype.is_complex
    if not (fractions and name == "AVG") and not (dtype in FLOAT8 and name in ("SUM", "PRODUCT")):
        assert same(tensor, wanted), (name, case, tensor, wanted)
        return
    wide = torch.complex128 if dtype.is_complex else torch.float64
    tolerance = 8 * torch.finfo(dtype).eps
    near = torch.allclose(tensor.to(wide), wanted.to(wide), rtol=tolerance, atol=0)
    assert near, (name, case, tensor, wanted)


def untouched(tensors, before, *case):
    assert [bits(t) for t in tensors] == before, ("an input was changed", case)


@by_size
def test_all_reduce(size):
    def job(backend, rank):
        seen = []
        for (dtype, name), shape, layout, late in cases(reductions(dtypes_for(size)), SHAPES):
            given = inputs(size, shape, dtype, layout)
            tensor, wanted = given[rank], reduced(given, name)
            opts = opts_of("AllreduceOptions", late, reduceOp=operation(name))
            backend.allreduce([tensor], opts).wait()
            expect(tensor, wanted, name, shape, layout)
            seen.append(bits(tensor))
        return seen

    results = threaded(size).run(job)
    assert all(seen == results[0] for seen in results), "ranks have different bits"


@by_size
def test_reduce(size):
    def job(backend, rank):
        for (dtype, name), root, layout, late in cases(reductions(dtypes_for(size)), range(size)):
            given = inputs(size, (4, 3), dtype, layout, root)
            tensor, wanted = given[rank], reduced(given, name)
            before = [bits(tensor)]
            opts = opts_of("ReduceOptions", late, reduceOp=operation(name), rootRank=root)
            backend.reduce([tensor], opts).wait()
            if rank == root:
                expect(tensor, wanted, name, root, layout)
            else:
                untouched([tensor], before, name, dtype, root)

    threaded(size).run(job)


@by_size
def test_broadcast(size):
    def job(backend, rank):
        for dtype, shape, root, layout, late in cases(dtypes_for(size), SHAPES, range(size)):
            given = inputs(size, shape, dtype, layout)
            opts = opts_of("BroadcastOptions", late, rootRank=root)
            backend.broadcast([given[rank]], opts).wait()
            expect(given[rank], inputs(size, shape, dtype, layout)[root], "", root, layout)

    threaded(size).run(job)


def gathered(size, shapes, dtype, layout):
    """(what each rank gives, room for all of it)."""
    given = [make(shape, dtype, layout, r) for r, shape in enumerate(shapes)]
    return given, [blank(shape, dtype, layout) for shape in shapes]


@by_size
def test_all_gather(size):
    even = [[shape] * size for shape in SHAPES]
    uneven = [[(3 * r % 5, 2) for r in range(size)], [(7,) if r == 1 else () for r in range(size)]]

    def job(backend, rank):
        for dtype, shapes, layout, late in cases(dtypes_for(size), even + uneven):
            given, outputs = gathered(size, shapes, dtype, layout)
            before = [bits(given[rank])]
            opts = opts_of("AllgatherOptions", late)
            backend.allgather([outputs], [given[rank]], opts).wait()
            for source in range(size):
                expect(outputs[source], given[source], "", shapes, layout)
            untouched([given[rank]], before, dtype, shapes)

    threaded(size).run(job)


@by_size
def test_all_gather_single(size):
    """Concatenated and stacked outputs."""

    def job(backend, rank):
        shapes = [(1,), (7,), (4, 3), (0, 2)]
        for dtype, shape, stacked, layout, late in cases(dtypes_for(size), shapes, [False, True]):
            given = inputs(size, shape, dtype, layout)
            wanted = (torch.stack if stacked else torch.cat)(
                [g.view(torch.uint8) if 0 else g for g in given]
            )
            output = blank(tuple(wanted.shape), dtype, layout)
            opts = opts_of("AllgatherOptions", late)
            backend.all_gather_single(output, given[rank], opts).wait()
            expect(output, wanted, "", shape, stacked, layout)

    threaded(size).run(job)


@by_size
def test_gather(size):
    def job(backend, rank):
        for dtype, root, shape, layout, late in cases(FEW, range(size), [(), (4, 3), (0,)]):
            given, outputs = gathered(size, [shape] * size, dtype, layout)
            before = [bits(given[rank])]
            opts = opts_of("GatherOptions", late, rootRank=root)
            backend.gather([outputs] if rank == root else [], [given[rank]], opts).wait()
            untouched([given[rank]], before, dtype, root)
            if rank == root:
                for source in range(size):
                    expect(outputs[source], given[source], "", root, layout)

    threaded(size).run(job)


@by_size
def test_gather_single(size):
    def job(backend, rank):
        for dtype, root, layout, late in cases(FEW, range(size)):
            given = inputs(size, (4, 3), dtype, layout)
            output = blank((4 * size, 3), dtype, layout) if rank == root else torch.empty(0)
            opts = opts_of("GatherOptions", late, rootRank=root)
            backend.gather_single(output, given[rank], opts).wait()
            if rank == root:
                expect(output, torch.cat(given), "", root, layout)

    threaded(size).run(job)


@by_size
def test_scatter(size):
    def job(backend, rank):
        for dtype, root, shape, layout, late in cases(FEW, range(size), [(), (4, 3), (0,)]):
            given = inputs(size, shape, dtype, layout)
            before = [bits(t) for t in given]
            output = blank(shape, dtype, layout)
            opts = opts_of("ScatterOptions", late, rootRank=root)
            backend.scatter([output], [given] if rank == root else [], opts).wait()
            expect(output, given[rank], "", root, layout)
            untouched(given, before, dtype, root)

    threaded(size).run(job)


@by_size
def test_reduce_scatter(size):
    even = [[shape] * size for shape in SHAPES]
    uneven = [[(3 * r % 5, 2) for r in range(size)]]

    def job(backend, rank):
        for (dtype, name), shapes, layout, late in cases(reductions(FEW), even + uneven):
            given = [
                [make(shape, dtype, layout, r + d) for d, shape in enumerate(shapes)]
                for r in range(size)
            ]
            before = [bits(t) for t in given[rank]]
            output = blank(shapes[rank], dtype, layout)
            opts = opts_of("ReduceScatterOptions", late, reduceOp=operation(name))
            backend.reduce_scatter([output], [given[rank]], opts).wait()
            expect(output, reduced([g[rank] for g in given], name), name, shapes, layout)
            untouched(given[rank], before, dtype, name)

    threaded(size).run(job)


@by_size
def test_reduce_scatter_single(size):
    """Concatenated and stacked inputs."""

    def job(backend, rank):
        for (dtype, name), stacked, layout, late in cases(
            reductions(dtypes_for(size)), [False, True]
        ):
            shape = (size, 2, 3) if stacked else (2 * size, 3)
            given = inputs(size, shape, dtype, layout)
            before = [bits(given[rank])]
            output = blank((2, 3), dtype, layout)
            wanted = reduced(given, name).reshape(size, 2, 3)[rank]
            opts = opts_of("ReduceScatterOptions", late, reduceOp=operation(name))
            backend.reduce_scatter_single(output, given[rank], opts).wait()
            expect(output, wanted, name, stacked, layout)
            untouched([given[rank]], before, dtype, name)

    threaded(size).run(job)


@by_size
def test_all_to_all(size):
    """Every pair of ranks has a shape of its own, some of them empty."""

    def job(backend, rank):
        for dtype, uneven, layout, late in cases(dtypes_for(size), [0, 1]):
            shapes = [
                [(2 + uneven * ((s + 2 * d) % 4 - 2),) for d in range(size)] for s in range(size)
            ]
            given = [
                [make(shapes[s][d], dtype, layout, s + d) for d in range(size)] for s in range(size)
            ]
            outputs = [blank(shapes[s][rank], dtype, layout) for s in range(size)]
            before = [bits(t) for t in given[rank]]
            opts = opts_of("AllToAllOptions", late)
            backend.alltoall(outputs, given[rank], opts).wait()
            for source in range(size):
                expect(outputs[source], given[source][rank], "", uneven, layout)
            untouched(given[rank], before, dtype, uneven)

    threaded(size).run(job)


@by_size
def test_all_to_all_single(size):
    def job(backend, rank):
        for dtype, uneven, layout, late in cases(dtypes_for(size), [False, True]):
            rows = [[(s + 2 * d) % 4 if uneven else 2 for d in range(size)] for s in range(size)]
            given = [make((sum(rows[s]), 3), dtype, layout, s) for s in range(size)]
            coming = [rows[s][rank] for s in range(size)]
            output = blank((sum(coming), 3), dtype, layout)
            splits = (coming, rows[rank]) if uneven else ([], [])
            opts = opts_of("AllToAllOptions", late)
            backend.all_to_all_single(output, given[rank], *splits, opts).wait()
            parts = [given[s].split(rows[s])[rank] for s in range(size)]
            expect(output, torch.cat(parts), "", uneven, layout)

    threaded(size).run(job)


@by_size
def test_barrier(size):
    """Nobody leaves before the last has come."""

    def job(backend, rank):
        for late, last in itertools.product([False, True], range(size)):
            for _ in range(3):
                if rank == last:
                    come[last].append(late)
                backend.barrier(opts_of("BarrierOptions", late)).wait()
                assert come[last]
                backend.barrier(opts_of("BarrierOptions", late)).wait()
                come[last].clear()
                backend.barrier(opts_of("BarrierOptions", late)).wait()

    come = [[] for _ in range(size)]
    threaded(size).run(job)


@by_size
def test_coalesced(size):
    """Several tensors, of different dtypes and sizes, in one operation."""
    shapes, dtypes = [(3,), (0,), (2, 2)], [torch.float32, torch.int64, torch.complex64]

    def job(backend, rank):
        for late in (False, True):
            given = [
                [
                    make(shape, dtype, "strided", r)
                    for shape, dtype in zip(shapes, dtypes, strict=True)
                ]
                for r in range(size)
            ]
            mine = [t.clone() for t in given[rank]]
            backend.allreduce_coalesced(mine, opts_of("AllreduceCoalescedOptions", late)).wait()
            for i, tensor in enumerate(mine):
                expect(tensor, reduced([g[i] for g in given], "SUM"), "SUM", i)
            outputs = [torch.cat([torch.zeros_like(t)] * size) for t in given[rank]]
            opts = opts_of("AllgatherOptions", late)
            backend.all_gather_single_coalesced(outputs, given[rank], opts).wait()
            for i, output in enumerate(outputs):
                expect(output, torch.cat([g[i] for g in given]), "", i)
            by_rank = [[torch.zeros_like(t) for t in given[rank]] for _ in range(size)]
            backend.allgather_coalesced(by_rank, given[rank], opts).wait()
            for source, i in itertools.product(range(size), range(len(shapes))):
                expect(by_rank[source][i], given[source][i], "", i)
            whole = [torch.cat([t] * size) for t in given[rank]]
            outputs = [torch.zeros_like(t) for t in given[rank]]
            opts = opts_of("ReduceScatterOptions", late)
            backend.reduce_scatter_single_coalesced(outputs, whole, opts).wait()
            for i, output in enumerate(outputs):
                expect(output, reduced([g[i] for g in given], "SUM"), "SUM", i)

    threaded(size).run(job)


@by_size
def test_point_to_point(size):
    """Everybody sends to everybody, also to itself; layouts differ between the two sides."""

    def job(backend, rank):
        for dtype, shape, layout, _ in cases(dtypes_for(size), SHAPES):
            sent = [make(shape, dtype, layout, rank + d) for d in range(size)]
            got = [blank(shape, dtype, "strided") for _ in range(size)]
            works = [backend.send([sent[d]], d, 7) for d in range(size)]
            works += [backend.recv([got[s]], s, 7) for s in range(size)]
            for work in works:
                work.wait()
            for source in range(size):
                expect(got[source], make(shape, dtype, layout, source + rank), "", shape, layout)

    threaded(size).run(job)
