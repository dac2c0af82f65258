"""From a generator to checked rounds: what it is given, and what becomes of what it yields."""

import pytest

from teachdist.collectives import AlgorithmError, Recv, Reduce, Send, get
from teachdist.collectives.catalog import make


def test_a_single_action_becomes_a_round():
    def mine(rank, size):
        yield Send(1, 0)
        yield [Recv(1, 0)]
        yield ()

    made = make("all_reduce", mine)
    assert made.rounds(0, 2) == [(Send(1, 0),), (Recv(1, 0),), ()]


def test_a_generator_gets_only_what_it_asks_for():
    seen = []

    def modest(rank, size):
        seen.append((rank, size))
        yield ()

    def curious(rank, size, *, hosts, root):
        seen.append((rank, size, root, hosts))
        yield ()

    make("broadcast", modest).rounds(1, 3, root=2)
    made = make("broadcast", curious)
    made.rounds(1, 3, root=2)
    made.rounds(1, 3, root=2, hosts=[4, 4, 5])
    assert seen == [(1, 3), (1, 3, 2, (0, 0, 0)), (1, 3, 2, (4, 4, 5))]
    assert (made.takes_root, made.takes_hosts) == (True, True)
    assert not make("broadcast", modest).takes_root


def test_the_ring_of_three():
    assert get("all_reduce", "ring").rounds(0, 3) == [
        (Send(1, 2), Reduce(2, 1)),
        (Send(1, 1), Reduce(2, 0)),
        (Send(1, 0), Recv(2, 2)),
        (Send(1, 2), Recv(2, 1)),
    ]


def test_one_rank_has_nothing_to_say():
    for op, name in (("all_reduce", "ring"), ("barrier", "dissemination")):
        assert [r for r in get(op, name).rounds(0, 1) if r] == []


def test_errors_name_rank_and_round():
    def stops_short(rank, size):
        yield ()
        yield Send(size, 0)

    with pytest.raises(AlgorithmError, match="round 1: rank 0 yields Send") as caught:
        make("all_reduce", stops_short).rounds(0, 2)
    assert (caught.value.kind, caught.value.rank, caught.value.round) == ("rank", 0, 1)


def test_what_the_generator_raises_is_kept_as_the_cause():
    def breaks(rank, size):
        yield ()
        raise KeyError("lost")

    with pytest.raises(AlgorithmError, match="round 1: rank 0 raises KeyError: 'lost'") as caught:
        make("all_reduce", breaks).rounds(0, 2)
    assert isinstance(caught.value.__cause__, KeyError)


def test_wrong_arguments():
    ring = get("all_reduce", "ring")
    with pytest.raises(ValueError, match=r"'ring': rank must be in 0\.\.1, got 2"):
        ring.rounds(2, 2)
    with pytest.raises(ValueError, match=r"root must be in 0\.\.1, got 5"):
        ring.rounds(0, 2, root=5)
    with pytest.raises(ValueError, match="hosts must name a host for each of 2 ranks, got 3"):
        ring.rounds(0, 2, hosts=(0, 0, 0))
    with pytest.raises(ValueError, match=r"'doubling' doesn't serve 3 ranks: it serves Powers of"):
        get("all_gather", "doubling").rounds(0, 3)
