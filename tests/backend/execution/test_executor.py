"""The executor on links that do nothing but hand over and write down: order, values, what is kept.

The ranks are threads; the links are a table in memory. So what is tested is the executor and the
scripts that it plays, with no part of the real links.
"""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.distributed as dist

from teachdist.backend.calls import binding as calls
from teachdist.backend.calls.persistent import Persistent
from teachdist.backend.execution.executor import execute
from teachdist.backend.execution.plan import plan
from teachdist.backend.execution.script import SERIAL, combine
from teachdist.links import Deadline, Exchange, Header
from teachdist.links.collective.exchange import SEGMENT
from teachdist.links.transport.raw import view_bytes

SUM = dist.ReduceOp.SUM
TWO_SEGMENTS = SEGMENT // 4 + 1000  # float32 elements


class Table:
    """What all ranks have posted: {(rank, number of the turn): {chunk: bytes}}."""

    def __init__(self):
        self.posted = {}
        self.changed = threading.Condition()


class Links:
    """One rank's links: `log` has ("post" | "take" | "release", segment, round)."""

    def __init__(self, table, rank):
        self.table, self.rank = table, rank
        self.log = []

    def note(self, verb, step):
        self.log.append((verb, step.turn.segment, step.turn.round))

    def post(self, exchange, step):
        self.note("post", step)
        with self.table.changed:
            copies = {chunk: bytes(view) for chunk, view in step.leaving.items()}
            self.table.posted[self.rank, exchange.first + step.turn.number] = copies
            self.table.changed.notify_all()

    def take(self, exchange, step):
        self.note("take", step)
        arrived = {}
        for (peer, chunk), want in step.wants.items():
            place = (peer, exchange.first + step.turn.number)
            with self.table.changed:
                there = self.table.changed.wait_for(
                    lambda place=place: place in self.table.posted, 20
                )
            assert there, f"rank {peer} never posted turn {place[1]}"
            data = self.table.posted[place][chunk]
            assert len(data) == want.nbytes
            if want.room is None:
                arrived[peer, chunk] = tensor = torch.empty(want.numel, dtype=want.dtype)
                view_bytes(tensor)[:] = data
            else:
                want.room[:] = data
        return arrived

    def release(self, exchange, step):
        self.note("release", step)


class Ranks:
    """`size` ranks on one table; an exchange for each kind of call, as a member has."""

    def __init__(self, size):
        table = Table()
        self.links = [Links(table, rank) for rank in range(size)]
        self.sequence = 0

    def run(self, algorithm, call_of, observer_of=lambda rank: None):
        """Run call_of(rank) on all ranks by `algorithm`; the calls."""
        size, number = len(self.links), self.sequence
        self.sequence += 1

        def job(rank):
            call = call_of(rank)
            todo = plan(call.op, algorithm, rank, size, call.root, (0,) * size)
            exchange = Exchange(Header(1, 0, fingerprint=7), todo.width)
            exchange.begin(number, call.words, lambda: Deadline(20.0))
            execute(call, todo, self.links[rank], exchange, observer_of(rank))
            return call

        with ThreadPoolExecutor(size) as pool:
            return list(pool.map(job, range(size)))


def test_one_segment_is_posted_taken_and_released_round_by_round():
    ranks, xs = Ranks(2), [torch.ones(4), torch.ones(4)]
    ranks.run("ring", lambda rank: calls.all_reduce(xs[rank], SUM, rank, 2))
    verbs = [(verb, 0, number) for number in (0, 1) for verb in ("post", "take", "release")]
    assert ranks.links[0].log == verbs
    assert ranks.links[1].log == verbs
    assert all(x.eq(2).all() for x in xs)


def test_two_segments_are_interleaved():
    """Each turn goes out before the one before it is taken, unless it needs what comes now."""
    ranks, xs = Ranks(2), [torch.ones(TWO_SEGMENTS * 2) for _ in range(2)]
    ranks.run("ring", lambda rank: calls.all_reduce(xs[rank], SUM, rank, 2))
    order = [(verb, *where) for verb, *where in ranks.links[0].log if verb != "release"]
    a, b = 0, 1
    assert order[:8] == [
        ("post", a, 0),
        ("post", b, 0),
        ("take", a, 0),
        ("post", a, 1),
        ("take", b, 0),
        ("post", b, 1),
        ("take", a, 1),
        ("take", b, 1),
    ]
    assert all(x.eq(2).all() for x in xs)


@pytest.mark.parametrize("numel", [0, 1, 5, 4096, TWO_SEGMENTS])
@pytest.mark.parametrize("algorithm", ["two_shot", "rabenseifner", "linear", "binomial", "chain"])
def test_sums_are_right_and_inputs_only_read(algorithm, numel):
    """By reduce: the root has the sum, the others' tensors are as they were."""
    size = 4
    xs = [torch.arange(numel, dtype=torch.float32) % 97 + rank for rank in range(size)]
    before = [x.clone() for x in xs]
    Ranks(size).run(algorithm, lambda rank: calls.reduce(xs[rank], SUM, 1, rank, size))
    assert torch.equal(xs[1], sum(before))
    for rank in (0, 2, 3):
        assert torch.equal(xs[rank], before[rank])


@pytest.mark.parametrize("numel", [3, 3 * SERIAL + 5, 5 * SEGMENT // 4])
def test_contributions_meet_in_order_of_rank_on_every_rank(numel):
    """Floating-point sums depend on the order: all ranks must have the bits of the same one."""
    size = 4
    dice = torch.Generator().manual_seed(0)
    xs = [torch.randn(numel, generator=dice) * 10.0**rank for rank in range(size)]
    wanted = xs[0] + xs[1]
    wanted += xs[2]
    wanted += xs[3]
    other = xs[3] + xs[2] + xs[1] + xs[0]
    Ranks(size).run("direct", lambda rank: calls.all_reduce(xs[rank], SUM, rank, size))
    assert all(torch.equal(x, wanted) for x in xs)
    assert numel < 100 or not torch.equal(wanted, other)


def test_chunks_that_only_pass_through_live_elsewhere():
    """In a binomial gather rank 2 hands on the blocks of rank 3."""
    size, outs = 4, [torch.zeros(6) for _ in range(4)]
    blocks = [torch.full((6,), float(rank)) for rank in range(size)]

    def call_of(rank):
        return calls.gather(outs if rank == 0 else [], blocks[rank], 0, rank, size)

    Ranks(size).run("binomial", call_of)
    assert [out.unique().tolist() for out in outs] == [[0], [1], [2], [3]]
    assert [block.unique().tolist() for block in blocks] == [[0], [1], [2], [3]]


def test_a_call_that_is_known_plays_its_old_script():
    ranks, xs = Ranks(2), [torch.zeros(8) for _ in range(2)]
    kept = [Persistent((rank, 2), lambda call: True) for rank in range(2)]

    def call_of(rank):
        call = kept[rank].call(calls.all_reduce, xs[rank], SUM)
        call.route = object()  # the member notes here how the call went
        return call

    seen = []
    for turn in range(3):
        for rank, x in enumerate(xs):
            x.fill_(turn + rank)
        seen.append(ranks.run("direct", call_of))
        assert all(x.eq(2 * turn + 1).all() for x in xs)
    assert seen[0] == seen[1] == seen[2]  # the same Call objects
    assert all(call.script is not None and call.bind is None for call in seen[0])


def test_a_large_call_is_not_kept():
    """Its steps are written as they come: they would hold views of every piece."""
    ranks, xs = Ranks(2), [torch.ones(TWO_SEGMENTS) for _ in range(2)]
    kept = [Persistent((rank, 2), lambda call: True) for rank in range(2)]
    first, second = (
        ranks.run("direct", lambda rank: kept[rank].call(calls.all_reduce, xs[rank], SUM))
        for _ in range(2)
    )
    assert all(call.script is None for call in (*first, *second))
    assert not set(map(id, first)) & set(map(id, second))
    assert all(x.eq(4).all() for x in xs)


def test_an_observer_sees_every_turn_with_what_the_chunks_then_held():
    xs, seen = [torch.ones(4), torch.ones(4)], []

    def observer_of(rank):
        def observe(number, rnd, state):
            seen.append((number, {chunk: t.tolist() for chunk, t in state.items()}))

        return observe if rank == 0 else None

    Ranks(2).run("ring", lambda rank: calls.all_reduce(xs[rank], SUM, rank, 2), observer_of)
    assert seen == [(0, {0: [2, 2], 1: [1, 1]}), (1, {0: [2, 2], 1: [2, 2]})]


@pytest.mark.parametrize("numel", [1, SERIAL, SERIAL + 1, 3 * SERIAL + 7])
@pytest.mark.parametrize("own", [0, 1, 2, 3])
def test_combine_into_one_of_the_operands(numel, own):
    operands = [torch.arange(numel, dtype=torch.float64) + i for i in range(4)]
    wanted = sum(operands)
    total = torch.empty(numel, dtype=torch.float64)
    combine(torch.add, operands[own], operands, total if own > 1 else operands[own])
    assert torch.equal(operands[own], wanted)
    again = [torch.arange(numel, dtype=torch.float64) + i for i in range(4)]
    combine(torch.add, again[own], again, None)
    assert torch.equal(again[own], wanted)
