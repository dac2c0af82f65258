"""Delegation: gloo does the work on CPU tensors, this package keeps watching.

The same code hands CUDA tensors to NCCL, where every rank has a GPU of its own.
"""

import pytest
import torch
import torch.distributed as dist
from ranks import RankPool, on, raised

N = 3


def handed_over(**options):
    """A group whose CPU tensors go to gloo; made once on each rank."""
    import teachdist

    key = repr(sorted(options.items()))
    known = dist.__dict__.setdefault("_groups_of_tests", {})
    if key not in known:
        known[key] = dist.new_group(pg_options=teachdist.Options(delegate="gloo", **options))
    return known[key]


def ramp(rank, numel=6):
    return torch.arange(float(numel)) + 10 * rank


def parts(tensor, count):
    return [part.clone() for part in tensor.chunk(count)]


def empties(count, numel):
    return [torch.zeros(numel) for _ in range(count)]


def broadcast(group, rank):
    x = ramp(rank)
    return dist.broadcast(x, 1, group=group, async_op=True), x


def all_reduce(group, rank):
    x = ramp(rank)
    return dist.all_reduce(x, dist.ReduceOp.MAX, group=group, async_op=True), x


def reduce(group, rank):
    x = ramp(rank)
    work = dist.reduce(x, 2, group=group, async_op=True)
    return work, x if rank == 2 else None


def all_gather(group, rank):
    outs = empties(N, 6)
    return dist.all_gather(outs, ramp(rank), group=group, async_op=True), outs


def all_gather_into_tensor(group, rank):
    out = torch.zeros(N * 6)
    return dist.all_gather_into_tensor(out, ramp(rank), group=group, async_op=True), out


def gather(group, rank):
    outs = empties(N, 6) if rank == 1 else None
    return dist.gather(ramp(rank), outs, 1, group=group, async_op=True), outs


def scatter(group, rank):
    out = torch.zeros(2)
    ins = parts(ramp(rank), N) if rank == 2 else None
    return dist.scatter(out, ins, 2, group=group, async_op=True), out


def reduce_scatter(group, rank):
    out = torch.zeros(2)
    return dist.reduce_scatter(out, parts(ramp(rank), N), group=group, async_op=True), out


def reduce_scatter_tensor(group, rank):
    out = torch.zeros(2)
    return dist.reduce_scatter_tensor(out, ramp(rank), group=group, async_op=True), out


def all_to_all_single(group, rank):
    out = torch.zeros(6)
    return dist.all_to_all_single(out, ramp(rank), group=group, async_op=True), out


def barrier(group, rank):
    return dist.barrier(group=group, async_op=True), None


# what is called -> how the trace names it
CALLS = {
    broadcast: "broadcast",
    all_reduce: "all_reduce",
    reduce: "reduce",
    all_gather: "all_gather",
    all_gather_into_tensor: "all_gather",
    gather: "gather",
    scatter: "scatter",
    reduce_scatter: "reduce_scatter",
    reduce_scatter_tensor: "reduce_scatter",
    all_to_all_single: "all_to_all",
    barrier: "barrier",
}


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
def test_results_and_trace(call):
    """The same as by this package, and recorded as a call of gloo's that has no rounds."""

    def job():
        import warnings

        import teachdist

        warnings.simplefilter("ignore")
        rank = dist.get_rank()
        group = handed_over()
        results = []
        for each in (group, dist.group.WORLD):
            with teachdist.trace() as record:
                work, result = call(each, rank)
                work.wait()
            results.append((result, [(c.op, c.algorithm, len(c.rounds)) for c in record.calls]))
        return results

    for (by_gloo, seen), (by_us, ours) in on(N, job):
        torch.testing.assert_close(by_gloo, by_us, rtol=0, atol=0)
        assert seen == [(CALLS[call], "gloo", 0)]
        assert ours[0][0] == CALLS[call]
        assert ours[0][1] != "gloo"
        assert ours[0][2] > 0


def test_gloo_it_is():
    """What only gloo refuses is refused: averages of integers."""

    def job():
        x = torch.ones(2, dtype=torch.int64)
        dist.all_reduce(x.clone(), dist.ReduceOp.AVG)  # this package can
        group = dist.new_group(pg_options=__import__("teachdist").Options(delegate="gloo"))
        return raised(dist.all_reduce, x, dist.ReduceOp.AVG, group=group)

    with RankPool(2, "teachdist") as pool:
        for error in pool.run(job):
            assert error is not None


def test_the_board_shows_who_is_in_a_call():
    """While a rank waits for gloo its page says where, and then that it is over."""

    def job():
        group = handed_over()
        backend = group._get_backend(torch.device("cpu"))
        communicator, rank = backend.communicator, dist.get_rank()
        x = torch.ones(4)
        dist.all_reduce(x, group=group)  # everybody knows everybody
        number = communicator.sequence + 1
        if rank != 0:
            dist.all_reduce(x, group=group)
            return None
        seen = None
        while seen is None:  # rank 1 has come; nobody is kept waiting after this
            position = communicator.peers.position(1)
            entry = position.calls.get(number) if position is not None else None
            seen = entry and (position.state, entry.call)
        dist.all_reduce(x, group=group)
        return seen, communicator.page.read().state

    from teachdist.links.board.writer import IDLE, IN_CALL

    (state, text), after = on(N, job)[0]
    assert state == IN_CALL
    assert text.startswith("all_reduce(float32[4], SUM) at test_delegate.py")
    assert after == IDLE


def differ():
    """Rank 1 calls something else of the same size: gloo itself might never notice."""
    group = handed_over()
    x = torch.ones(4)
    dist.all_reduce(x, group=group)
    if dist.get_rank() == 1:
        return raised(dist.broadcast, x, 1, group=group)
    return raised(dist.all_reduce, x, group=group)


def test_different_calls_are_named():
    with RankPool(N, "teachdist") as pool:
        for kind, text in pool.run(differ):
            assert kind in ("DistBackendError", "Released")
            assert "rank 1 is in broadcast(float32[4], root=1) at " in text
            assert "ranks 0 and 2 are in all_reduce(float32[4], SUM) at " in text


def test_different_sizes_are_named():
    def job():
        group = handed_over()
        return raised(dist.all_reduce, torch.ones(4 + dist.get_rank() % 2), group=group)

    with RankPool(N, "teachdist") as pool:
        for _, text in pool.run(job):
            assert "rank 1 is in all_reduce(float32[5], SUM)" in text
            assert "float32[4]" in text


def test_a_rank_that_fails_frees_those_who_wait_in_gloo():
    def job():
        from teachdist.backend import release

        group = handed_over()
        x = torch.ones(4)

        def twice():
            for _ in range(2):  # it may hear of it before it has left the first
                dist.all_reduce(x, group=group)

        if dist.get_rank() == 1:
            dist.all_reduce(x, group=group)
            release(ValueError("no more today"))
            return None
        return raised(twice)

    with RankPool(N, "teachdist") as pool:
        first, _, third = pool.run(job)
    assert "rank 1 failed: ValueError: no more today" in first[1]
    assert "rank 1 failed: ValueError: no more today" in third[1]


def test_the_work_is_passed_on():
    def job():
        group = handed_over()
        x = torch.full((2,), float(dist.get_rank()))
        work = dist.all_reduce(x, group=group, async_op=True)
        future = work.get_future()
        doubled = future.then(lambda done: [2 * t for t in done.value()]).wait()
        assert work.wait() is True
        return (
            work.is_completed(),
            work.is_success(),
            [t.tolist() for t in work.result()],
            [t.tolist() for t in doubled],
        )

    assert on(N, job) == [(True, True, [[3, 3]], [[6, 6]])] * N


def test_calls_run_in_order_and_are_counted():
    def job():
        group = handed_over()
        before = group._get_sequence_number_for_group()
        numbers = torch.arange(5.0).reshape(5, 1)
        works = [dist.all_reduce(x, group=group, async_op=True) for x in numbers]
        for work in works:
            work.wait()
        return numbers.flatten().tolist(), group._get_sequence_number_for_group() - before

    assert on(N, job) == [([0, 3, 6, 9, 12], 5)] * N


def test_point_to_point():
    """Sends and receives go to gloo too, with tags and from anybody."""

    def job():
        group = handed_over()
        rank = dist.get_rank()
        if rank == 0:
            tensors = [torch.zeros(2) for _ in range(3)]
            dist.recv(tensors[1], 1, group=group, tag=7)
            dist.recv(tensors[0], 1, group=group, tag=8)
            source = dist.recv(tensors[2], group=group)
            return [t.tolist() for t in tensors], source
        if rank == 1:
            works = [
                dist.isend(torch.full((2,), 8.0), 0, group=group, tag=8),
                dist.isend(torch.full((2,), 7.0), 0, group=group, tag=7),
            ]
            for work in works:
                work.wait()
        else:
            dist.send(torch.full((2,), 2.0), 0, group=group)
        return None

    assert on(N, job)[0] == ([[8, 8], [7, 7], [2, 2]], 2)


def test_ddp_trains_through_it():
    def job(through):
        group = handed_over() if through else dist.group.WORLD
        torch.manual_seed(0)
        model = torch.nn.parallel.DistributedDataParallel(
            torch.nn.Linear(4, 2), process_group=group
        )
        model(ramp(dist.get_rank(), 4)).square().mean().backward()
        return [p.grad for p in model.parameters()]

    torch.testing.assert_close(on(N, job, True), on(N, job, False))


def test_compared_and_drawn_without_rounds():
    def job():
        import teachdist
        from teachdist.pictures.recorded import recorded_scene, together
        from teachdist.tracing import compare

        group = handed_over()
        with teachdist.trace() as record:
            dist.all_reduce(torch.ones(2), group=group)
            dist.all_reduce(torch.ones(2))
        titles = [recorded_scene(sides)["title"] for sides in together(record)]
        return len(compare(record).rows), titles

    rows, (by_gloo, ours) = on(N, job)[0]
    assert rows == 1  # gloo's has no price
    assert by_gloo.endswith("by gloo, 3 ranks, as recorded; its rounds are not seen")
    assert "not seen" not in ours


def test_what_cannot_be_a_delegate():
    def job():
        import teachdist

        group = dist.new_group(pg_options=teachdist.Options(delegate={"cpu": "nonsense"}))
        return raised(dist.all_reduce, torch.ones(1), group=group)

    with RankPool(2, "teachdist") as pool:
        for kind, text in pool.run(job):
            assert kind == "ValueError"
            assert "delegate='nonsense' (or TEACHDIST_DELEGATE): expected gloo, nccl, or" in text
