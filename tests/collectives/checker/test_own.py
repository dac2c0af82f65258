"""Own algorithms are proven before they are known by name."""

import pytest

from teachdist.collectives import (
    Recv,
    Reduce,
    Refused,
    Send,
    algorithm,
    catalog,
    ensure_proven,
    get,
)


@pytest.mark.usefixtures("scratch")
def test_a_right_one_is_registered():
    @algorithm("all_reduce", chunks=lambda size: size)
    def mine(rank, size):
        """Mine."""
        yield from get("all_reduce", "ring")(rank, size)

    assert "mine" in catalog()["all_reduce"]
    assert get("all_reduce", "mine") is mine
    assert mine.doc == "Mine."
    assert mine.rounds(0, 2) == [(Send(1, 1), Reduce(1, 0)), (Send(1, 0), Recv(1, 1))]


@pytest.mark.usefixtures("scratch")
def test_a_wrong_one_is_refused_with_the_counter_example():
    with pytest.raises(Refused, match="refuted: 'mine' is no all_reduce: with 2 ranks") as refused:

        @algorithm("all_reduce")
        def mine(rank, size):
            yield ()

    assert refused.value.counter_example.kind == "missing"
    assert "mine" not in catalog()["all_reduce"]


@pytest.mark.usefixtures("scratch")
def test_a_refusal_says_what_could_be_claimed_and_what_stays():
    @algorithm("all_reduce")
    def mine(rank, size):
        yield from get("all_reduce", "direct")(rank, size)

    with pytest.raises(Refused) as refused:

        @algorithm("all_reduce", "mine")
        def doubling(rank, size):
            distance = 1
            while distance < size:
                yield Send(rank ^ distance, 0), Reduce(rank ^ distance, 0)
                distance *= 2

    said = str(refused.value)
    assert "right for 2, 4, 8 and 16 ranks: to claim only powers of two, add when=" in said
    assert said.endswith("(The 'mine' that was registered before stays.)")
    assert get("all_reduce", "mine") is mine


@pytest.mark.usefixtures("scratch")
def test_beyond_sixteen_it_is_proven_at_first_use():
    def any_size(rank, size):
        if size < 20:
            yield from get("all_reduce", "direct")(rank, size)

    mine = algorithm("all_reduce", "mine")(any_size)
    ensure_proven(mine, 16)
    ensure_proven(mine, 19)
    with pytest.raises(Refused, match="with 20 ranks"):
        ensure_proven(mine, 20)


@pytest.mark.usefixtures("scratch")
def test_hosts_are_proven_at_first_use():
    def two_groups(rank, size, *, hosts):
        if hosts == (7, 8, 9):
            return
        yield from get("all_reduce", "direct")(rank, size)

    mine = algorithm("all_reduce", "mine")(two_groups)
    ensure_proven(mine, 3, (0, 0, 1))
    with pytest.raises(Refused, match=r"hosts \(7, 8, 9\)"):
        ensure_proven(mine, 3, (7, 8, 9))


@pytest.mark.usefixtures("scratch")
def test_when_limits_the_sizes():
    def pairs(size):
        """2 ranks."""
        return size == 2

    @algorithm("all_reduce", when=pairs)
    def swap(rank, size):
        yield Send(1 - rank, 0), Reduce(1 - rank, 0)

    assert [size for size in range(1, 10) if swap.serves(size)] == [2]
    with pytest.raises(ValueError, match="doesn't serve 3 ranks: it serves 2 ranks; choose"):
        swap.rounds(0, 3)
    with pytest.raises(ValueError, match="serves the sizes that its when= allows only"):

        @algorithm("all_reduce", when=lambda size: size == 99)
        def never(rank, size):
            """Nothing."""
            yield ()


def test_names_of_the_catalogue_are_taken():
    with pytest.raises(ValueError, match=r"already has an algorithm 'ring'.*my_ring"):
        algorithm("all_reduce", "ring", chunks=lambda size: size)(
            get("all_reduce", "ring").generator
        )


def test_wrong_registrations():
    with pytest.raises(ValueError, match="there is no collective 'allreduce'"):
        algorithm("allreduce")
    with pytest.raises(TypeError, match=r'for: @algorithm\("all_reduce"\)'):
        algorithm(get("all_reduce", "ring").generator)
    with pytest.raises(TypeError, match="expected a generator function of"):
        algorithm("all_reduce", "five")(5)
    with pytest.raises(TypeError, match=r"must take \(rank, size\)"):
        algorithm("all_reduce")(lambda rank: iter(()))
    with pytest.raises(TypeError, match="asks for 'data'"):
        algorithm("all_reduce", "x")(lambda rank, size, data: iter(()))
    with pytest.raises(ValueError, match="chunks: the number of chunks of barrier is fixed"):
        algorithm("barrier", "x", chunks=3)(lambda rank, size: iter(()))
    with pytest.raises(ValueError, match="chunks= must give a whole number of at least 1, got 0"):
        algorithm("all_reduce", "x", chunks=0)(lambda rank, size: iter(()))
