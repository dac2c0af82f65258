"""The checker finds what is wrong, says it in words, and accepts what is right."""

import gc
import re
import sys

import pytest

from teachdist.collectives import (
    DEFINITIONS,
    Recv,
    Reduce,
    Send,
    catalog,
    get,
    prove,
)
from teachdist.collectives.catalog import make
from teachdist.collectives.checker.prove import layouts
from teachdist.collectives.checker.symbolic import Execution

ENTRIES = [(op, name) for op, names in catalog().items() for name in names]


def some_roots(size):
    """Every root up to 12 ranks; above, the first, one in the middle and the last."""
    return range(size) if size <= 12 else (0, size // 2, size - 1)


def some_layouts(size):
    """All kinds of layout up to 12 ranks; above, hosts of four ranks and two uneven hosts."""
    kinds = layouts(size)
    return kinds if size <= 12 else (kinds[2], (0,) * 5 + (1,) * (size - 5))


@pytest.mark.parametrize(("op", "name"), ENTRIES)
def test_catalogue_is_proven_up_to_64_ranks(op, name):
    verdict = prove(name, op, ranks=range(1, 65), roots=some_roots, hosts=some_layouts)
    assert verdict, verdict
    assert all(get(op, name).serves(size) == (size in verdict.sizes) for size in range(1, 65))
    definition = DEFINITIONS[op]
    if definition.reduces and not definition.union:
        assert verdict.same_bits


def test_ring_at_many_ranks():
    verdict = prove("ring", "all_reduce", ranks=200)
    assert verdict
    assert verdict.rounds == {200: 398}
    assert verdict.messages == {200: 398 * 200}
    assert "200 ranks (398 rounds, 79600 messages)" in str(verdict)


def double_counting(rank, size):
    # The dissemination pattern, right for a barrier only.
    for distance in (1, 2):
        yield Send((rank + distance) % size, 0), Reduce((rank - distance) % size, 0)


def missing_contribution(rank, size):
    # The ring's first half stops one step early.
    right, left = (rank + 1) % size, (rank - 1) % size
    for step in range(size - 2):
        yield Send(right, (rank - 1 - step) % size), Reduce(left, (rank - 2 - step) % size)


def never_sent(rank, size):
    if rank == 0:
        yield Recv(size - 1, 0)


def sent_a_round_late(rank, size):
    if rank == 0:
        yield Reduce(1, 0)
    elif rank == 1:
        yield ()
        yield Send(0, 0)


def never_received(rank, size):
    if rank == 1:
        yield Send(0, 0)


def overwritten(rank, size):
    peer = rank ^ 1
    yield Send(peer, 0), Recv(peer, 0)


def two_at_once(rank, size):
    # Both would be harmless alone; together it's chance which one stays.
    if rank == 2:
        yield Reduce(0, 0), Recv(1, 0)
    else:
        yield Send(2, 0)


def chunk_out_of_range(rank, size):
    yield Send((rank + 1) % size, size), Reduce((rank - 1) % size, size)


def strange_rank(rank, size):
    yield ()
    yield Send(rank + 1, 0)


def to_itself(rank, size):
    yield Send(rank, 0)


def yields_for_ever(rank, size):
    while True:
        yield ()


def runs_in_circles(rank, size):
    yield ()
    while True:
        pass


def runs_in_circles_on_one_line(rank, size):
    yield ()
    while True: pass  # fmt: skip # noqa: E701


def yields_a_stranger(rank, size):
    yield "hello"


def yields_a_stranger_inside(rank, size):
    yield Send((rank + 1) % size, 0), ("Reduce", (rank - 1) % size, 0)


def half_a_chunk(rank, size):
    yield Send((rank + 1) % size, size / 2)


def no_generator(rank, size):
    return [Send((rank + 1) % size, 0)]


def raises(rank, size):
    yield ()
    if rank == 1:
        _ = [1, 2][size]


FAULTS = [
    (double_counting, 3, 1, "double", "round 1: rank 0 adds chunk 0 from rank 1, and so counts"),
    (missing_contribution, 3, 3, "missing", "rank 0 has chunk 0 without the contribution of"),
    (
        never_sent,
        3,
        1,
        "deadlock",
        "round 0: rank 0 waits for chunk 0 from rank 2 for ever: rank 2",
    ),
    (sent_a_round_late, 3, 1, "deadlock", "round 0: .* for ever: rank 1 sends that in round 1"),
    (never_received, 3, 1, "unmatched", "round 0: rank 1 sends chunk 0 to rank 0, which never rec"),
    (overwritten, 2, 1, "overwritten", "receives chunk 0 from rank 1 over what it has and loses"),
    (two_at_once, 3, 1, "overwritten", "rank 2 gets chunk 0 more than once"),
    (chunk_out_of_range, 3, 3, "range", r"there are only chunks 0\.\.2"),
    (strange_rank, 3, 1, "rank", r"round 1: rank 2 yields Send\(to=3, .* only ranks 0\.\.2"),
    (to_itself, 3, 1, "rank", "round 0: rank 0 yields .*a message to itself"),
    (yields_for_ever, 3, 1, "endless", "round 1048: rank 0 still goes on after 1048 rounds"),
    (yields_a_stranger, 3, 1, "stranger", "round 0: rank 0 yields 'hello'; a round is Send"),
    (yields_a_stranger_inside, 3, 1, "stranger", "round 0: rank 0 yields .'Reduce'.* among its"),
    (half_a_chunk, 3, 3, "stranger", r"round 0: .*chunk=1\.5.*must be whole numbers"),
    (no_generator, 3, 1, "stranger", "rank 0 gets .*must be a generator, that is contain `yield`"),
    (raises, 3, 1, "exception", "round 1: rank 1 raises IndexError: list index out of range"),
]


@pytest.mark.parametrize(
    ("wrong", "size", "chunks", "kind", "words"), FAULTS, ids=lambda v: getattr(v, "__name__", None)
)
def test_refutes(wrong, size, chunks, kind, words):
    verdict = prove(wrong, "all_reduce", ranks=size, chunks=chunks)
    assert not verdict
    assert verdict.kind == kind
    assert verdict.size == size
    assert re.search(words, verdict.sentence), verdict.sentence
    assert verdict.algorithm.generator is wrong
    assert f"refuted: {wrong.__name__!r} is no all_reduce: with {size} ranks, " in str(verdict)


@pytest.mark.skipif(sys.gettrace() is not None, reason="a debugger or coverage owns sys.settrace")
@pytest.mark.parametrize("wrong", [runs_in_circles, runs_in_circles_on_one_line])
def test_a_loop_without_yield_is_stopped(wrong):
    verdict = prove(wrong, "all_reduce", ranks=2)
    assert verdict.kind == "endless"
    assert verdict.sentence.startswith("round 1: rank 0 neither yields nor ends")
    assert sys.gettrace() is None


def test_of_several_sizes_one_rank_is_tried_last():
    assert prove(to_itself, "all_reduce").size == 2
    assert prove(lambda rank, size: iter(()), "all_reduce", ranks=1)


def test_a_fault_of_order_says_that_both_belong_in_one_round():
    def first_all_send(rank, size):
        yield Send((rank + 1) % size, 0)
        yield Reduce((rank - 1) % size, 0)

    verdict = prove(first_all_send, "all_reduce", ranks=2)
    assert "which receives that in round 1; a Send and its Recv or Reduce" in verdict.sentence


def test_sends_what_it_does_not_have():
    def hasty(rank, size, *, root):
        right, left = (rank + 1) % size, (rank - 1) % size
        yield Send(right, 0), Recv(left, 0)

    verdict = prove(hasty, "broadcast", ranks=3)
    assert (verdict.kind, verdict.root, verdict.rank) == ("unheld", 0, 1)
    assert verdict.sentence == "round 0: rank 1 sends chunk 0, which it doesn't have"


def test_nothing_may_be_added_where_nothing_is_summed():
    def adds(rank, size):
        peer = 1 - rank
        yield Send(peer, rank), Reduce(peer, peer)

    verdict = prove(adds, "all_gather", ranks=2)
    assert verdict.kind == "combine"
    assert "all_gather combines nothing; use Recv" in verdict.sentence


def test_block_never_arrives():
    verdict = prove(lambda rank, size: iter(()), "all_gather", ranks=2)
    assert (verdict.kind, verdict.rank, verdict.chunk) == ("missing", 0, 1)


def test_every_root_is_tried():
    def only_from_zero(rank, size, *, root):
        yield Send(1, 0) if rank == 0 else Recv(0, 0)

    verdict = prove(only_from_zero, "broadcast", ranks=2)
    assert (verdict.root, verdict.kind) == (1, "unheld")
    assert "with 2 ranks, root 1," in str(verdict)
    assert prove(only_from_zero, "broadcast", ranks=2, roots=[0])


def test_given_host_layouts_are_tried():
    def wrong_across_hosts(rank, size, *, hosts):
        if len(set(hosts)) == 1:
            yield Send(1 - rank, 0), Reduce(1 - rank, 0)

    assert prove(wrong_across_hosts, "all_reduce", ranks=2, hosts=(5, 5))
    verdict = prove(wrong_across_hosts, "all_reduce", ranks=2)
    assert (verdict.kind, verdict.hosts) == ("missing", (0, 1))
    assert "hosts (0, 1)" in str(verdict)


def test_different_orders_of_adding_are_told():
    def rotating(rank, size):
        # All contributions arrive, but each rank groups them differently: no equal bits.
        for distance in (1, 2):
            yield Send((rank + distance) % size, 0), Reduce((rank - distance) % size, 0)

    verdict = prove(rotating, "all_reduce", ranks=4)
    assert verdict
    assert verdict.same_bits is False
    assert "may differ in the last bits" in str(verdict)


def test_orders_that_differ_by_ranks_61_apart_are_told_apart():
    def two_sums(rank, size):
        # All but 1 and 62 are summed on 63 and copied to 64; then 1 and 62 come in either order.
        early = [r for r in range(size) if r not in (1, 62, 63)]
        if rank == 63:
            yield [Reduce(r, 0) for r in early]
        else:
            yield [Send(63, 0)] if rank in early else []
        yield {63: [Send(64, 0)], 64: [Recv(63, 0)]}.get(rank, [])
        for to_63, to_64 in ((1, 62), (62, 1)):
            yield {
                to_63: [Send(63, 0)],
                to_64: [Send(64, 0)],
                63: [Reduce(to_63, 0)],
                64: [Reduce(to_64, 0)],
            }.get(rank, [])
        if rank == 63:
            yield [Send(r, 0) for r in range(63)]
        elif rank < 63:
            yield [Recv(63, 0)]

    verdict = prove(two_sums, "all_reduce", ranks=65)
    assert verdict, verdict
    assert verdict.same_bits is False


def test_several_values_for_one_chunk_beside_one_for_another():
    def to_rank_0(rank, size):
        if rank == 0:
            yield Reduce(2, 1), Reduce(1, 0), Reduce(2, 0)
        else:
            yield tuple(Send(0, chunk) for chunk in range(rank))

    run = Execution(make("all_reduce", to_rank_0, chunks=2), 3)
    run.step()
    assert {chunk: value[0] for chunk, value in run.held[0].items()} == {0: 0b111, 1: 0b101}
    assert run.messages == 2


def test_sending_twice_is_refuted():
    def twice(rank, size):
        yield (Send(1, 0), Send(1, 0)) if rank == 0 else Reduce(0, 0)

    verdict = prove(twice, "all_reduce", ranks=2)
    assert verdict.kind == "unmatched"
    assert verdict.sentence == "round 0: rank 0 sends chunk 0 to rank 1 twice"


def test_reducing_what_was_not_there_is_refuted_where_nothing_is_summed():
    def adds(rank, size, *, root):
        yield Send(1 - rank, 0) if rank == root else Reduce(1 - rank, 0)

    verdict = prove(adds, "broadcast", ranks=2)
    assert verdict.kind == "combine"


@pytest.mark.parametrize("on", [True, False])
@pytest.mark.parametrize("generator", [overwritten, "ring", raises])
def test_the_garbage_collector_is_left_as_it_was_found(generator, on):
    before = gc.isenabled()
    try:
        (gc.enable if on else gc.disable)()
        prove(generator, "all_reduce", ranks=2)
        assert gc.isenabled() is on
    finally:
        (gc.enable if before else gc.disable)()


def test_the_garbage_collector_comes_back_when_a_proof_is_broken_off():
    def interrupted(rank, size):
        yield ()
        raise KeyboardInterrupt

    assert gc.isenabled()
    with pytest.raises(KeyboardInterrupt):
        prove(interrupted, "all_reduce", ranks=2)
    assert gc.isenabled()


def test_sizes_that_are_not_served():
    with pytest.raises(ValueError, match="number of ranks must be at least 1, got 0"):
        prove("ring", "all_reduce", ranks=0)
    with pytest.raises(ValueError, match="serves any number of ranks only"):
        prove("ring", "all_reduce", ranks=[])


def test_a_bare_function_needs_an_op():
    with pytest.raises(ValueError, match="say which collective"):
        prove(overwritten)


def test_a_name_of_several_collectives_needs_an_op():
    with pytest.raises(ValueError, match=r"'ring' exists for .*all_gather"):
        prove("ring")
