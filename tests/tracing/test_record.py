"""What a trace says of a real call is what the algorithm does, in one segment and in several."""

import pytest
import torch
import torch.distributed as dist
from ranks import shared_pool

from teachdist.collectives import DEFINITIONS, Send, cost, get
from teachdist.collectives.checker.symbolic import Execution
from teachdist.collectives.schedule import members
from teachdist.tracing import trace

SMALL, LARGE = 30, 1_800_000  # elements: one segment, and several


def traced(job, *args, values=False, **algorithms):
    """On a rank: job(rank, size) under a trace; the calls recorded."""
    from teachdist import use

    with use(**algorithms), trace(values=values) as record:
        job(dist.get_rank(), dist.get_world_size(), *args)
    return record.calls


def sum_of_powers(rank, size, numel):
    """Rank r brings 2^r, so that a value shows who is in it."""
    dist.all_reduce(torch.full((numel,), 2.0**rank))


@pytest.mark.parametrize("numel", [SMALL, LARGE])
@pytest.mark.parametrize("name", ["ring", "linear", "rabenseifner"])
def test_rounds_peers_chunks_and_bytes_are_those_of_the_algorithm(name, numel):
    pool = shared_pool(3, "teachdist")
    sides = pool.run(traced, sum_of_powers, numel, all_reduce=name)
    algorithm = get("all_reduce", name)
    chunk_bytes = 4 * numel // algorithm.chunks(3)
    for rank, (call,) in enumerate(sides):
        assert (call.rank, call.size, call.nbytes, call.algorithm) == (rank, 3, 4 * numel, name)
        rounds = algorithm.rounds(rank, 3)
        longest = max(len(algorithm.rounds(other, 3)) for other in range(3))
        rounds += [()] * (longest - len(rounds))  # a rank that ends early idles
        assert [step.number for step in call.rounds] == list(range(len(rounds)))
        for step, actions in zip(call.rounds, rounds, strict=True):
            sends, takes = {}, {}
            for action in actions:
                into = sends if isinstance(action, Send) else takes
                into.setdefault(action[0], []).append(action.chunk)
            for seen, planned in ((step.sends, sends), (step.takes, takes)):
                assert seen == {
                    peer: (tuple(sorted(chunks)), chunk_bytes * len(chunks))
                    for peer, chunks in planned.items()
                }


@pytest.mark.parametrize("numel", [SMALL, LARGE])
@pytest.mark.parametrize("name", ["ring", "direct", "binomial"])
def test_values_after_each_round_are_those_of_the_symbolic_execution(name, numel):
    pool = shared_pool(3, "teachdist")
    sides = pool.run(traced, sum_of_powers, numel, values=True, all_reduce=name)
    symbolic = Execution(get("all_reduce", name), 3)
    film = []
    while symbolic.step() is not None:
        film.append(list(map(dict, symbolic.held)))
    length = numel // get("all_reduce", name).chunks(3)
    for rank, (call,) in enumerate(sides):
        for step, held in zip(call.rounds, (after[rank] for after in film), strict=True):
            assert set(step.values) == set(held)
            for chunk, value in step.values.items():
                wanted = sum(2.0**member for member in members(held[chunk][0]))
                assert value.tolist() == [wanted] * length


def test_segments_are_spans_one_behind_the_other():
    pool = shared_pool(2, "teachdist")
    for numel, several in ((SMALL, False), (LARGE, True)):
        for (call,) in pool.run(traced, sum_of_powers, numel, all_reduce="ring"):
            spans = sorted(span for step in call.rounds for span in step.spans)
            assert (len(spans) > len(call.rounds)) == several
            assert all(len(step.spans) == len(call.rounds[0].spans) for step in call.rounds)
            assert call.began <= spans[0][0]
            assert spans[-1][1] <= call.ended
            for (began, ended), (following, _) in zip(spans, spans[1:], strict=False):
                assert began <= ended <= following
            assert sum(step.seconds for step in call.rounds) <= call.seconds


def every_collective(rank, size):
    x, blocks = torch.ones(4), [torch.ones(4) for _ in range(size)]
    dist.all_reduce(x)
    dist.reduce(x, 1)
    dist.broadcast(x, 1)
    dist.all_gather(blocks, x)
    dist.reduce_scatter(x, blocks)
    dist.gather(x, blocks if rank == 1 else None, 1)
    dist.scatter(x, blocks if rank == 1 else None, 1)
    dist.all_to_all_single(torch.empty(6), torch.ones(6))
    dist.barrier()


# n of the cost formulas, in bytes
WANTED = {
    "all_reduce": 16,
    "reduce": 16,
    "broadcast": 16,
    "all_gather": 48,
    "reduce_scatter": 48,
    "gather": 48,
    "scatter": 48,
    "all_to_all": 24,
    "barrier": 0,
}


def test_each_call_can_be_priced():
    sides = shared_pool(3, "teachdist").run(traced, every_collective)
    assert set(WANTED) == set(DEFINITIONS)
    for calls in sides:
        assert [(call.op, call.nbytes) for call in calls] == list(WANTED.items())
        for call in calls:
            root = 1 if DEFINITIONS[call.op].rooted else 0
            assert call.root == root
            own, other = call.predicted(), call.predicted("loopback")
            assert own.topology.name == "shared_memory"
            for found in (own, other):
                wanted = cost(
                    call.algorithm, call.op, WANTED[call.op], 3, found.topology, root=root
                )
                assert found == wanted


def test_the_text_shows_values_when_they_were_asked_for():
    def job():
        with trace(values=True) as record:
            dist.all_reduce(torch.arange(2.0) + dist.get_rank())
        return str(record)

    text = shared_pool(2, "teachdist").run(job)[0]
    assert text.splitlines()[1:] == [
        "  round 0: sends chunk 0 to rank 1, adds chunk 0 from rank 1",
        "      0: [1, 3]",
    ]


def test_outside_of_the_block_nothing_is_recorded():
    def job():
        with trace() as outer:
            dist.barrier()
            with trace() as inner:
                dist.barrier()
        dist.barrier()
        return len(outer.calls), len(inner.calls)

    assert shared_pool(2, "teachdist").run(job) == [(2, 1)] * 2


def test_an_inner_trace_that_ends_leaves_the_outer_one_open():
    def job():
        with trace() as outer:
            with trace() as inner:
                dist.all_reduce(torch.ones(1))
            dist.all_reduce(torch.ones(1))
        return len(inner.calls), len(outer.calls)

    assert shared_pool(2, "teachdist").run(job) == [(1, 2)] * 2
