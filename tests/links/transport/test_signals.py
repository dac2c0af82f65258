"""Counters and bells, in both kinds: words in memory, and tokens through the pipes."""

import os
import threading

import pytest

from teachdist.links.errors import TimedOut
from teachdist.links.transport.signals import ASLEEP, DONE, READY, Tokens, Words, for_whom
from teachdist.links.waiting import Deadline


@pytest.fixture(params=[Words, Tokens])
def pair(request):
    """Two ranks that know each other."""
    pages = [memoryview(bytearray(4096)).cast("Q") for _ in range(2)]
    ranks = [request.param(rank, page) for rank, page in enumerate(pages)]
    for me, other in ((0, 1), (1, 0)):
        ranks[me].meet(other, pages[other], os.getpid(), ranks[other].bell)
    yield ranks
    for rank in ranks:
        rank.close()


def test_a_counter_that_is_there_is_not_waited_for(pair):
    first, second = pair
    first.raise_to(READY, 5, first.with_counters([1]))
    second.wait(0, READY, 5, Deadline(5))
    second.wait(0, READY, 3, Deadline(5))
    assert second.theirs[0][READY] == 5


def test_counters_are_apart(pair):
    first, second = pair
    first.raise_to(READY, 5, first.with_counters([1]))
    first.raise_to(DONE, 2, first.with_counters([1]))
    second.wait(0, DONE, 2, Deadline(5))
    with pytest.raises(TimedOut):
        second.wait(0, DONE, 3, Deadline(0.01))


def test_a_sleeper_is_woken(pair):
    first, second = pair
    slept = []
    sleep = second._sleep

    def noting(deadline):
        slept.append(True)
        return sleep(deadline)

    second._sleep = noting
    thread = threading.Thread(target=second.wait, args=(0, READY, 1, Deadline(10)))
    thread.start()
    while not slept:
        thread.join(0.001)
    first.raise_to(READY, 1, first.with_counters([1]))
    thread.join(5)
    assert not thread.is_alive()


def test_many_rounds_to_and_fro(pair):
    first, second = pair

    def play(me, other):
        for k in range(1, 2000):
            me.raise_to(READY, k, me.with_counters([1 - me.rank]))
            me.wait(other, READY, k, Deadline(20))
            me.raise_to(DONE, k, me.with_counters([1 - me.rank]))
            me.wait(other, DONE, k, Deadline(20))

    thread = threading.Thread(target=play, args=(second, 0))
    thread.start()
    play(first, 1)
    thread.join(20)
    assert not thread.is_alive()


def test_the_end_of_patience_names_the_rank(pair):
    with pytest.raises(TimedOut) as failure:
        pair[0].wait(1, READY, 1, Deadline(0.01))
    assert failure.value.ranks == (1,)


def test_only_who_waits_for_this_is_rung():
    pages = [memoryview(bytearray(4096)).cast("Q") for _ in range(2)]
    first, second = Words(0, pages[0]), Words(1, pages[1])
    first.meet(1, pages[1], os.getpid(), second.bell)
    rung = []
    first._ring = lambda peer, what: rung.append(peer)
    for asleep, wanted, rings in [
        (0, 5, False),
        (for_whom(0, READY), 5, True),
        (for_whom(0, READY), 6, False),
        (for_whom(0, DONE), 5, False),
        (for_whom(3, READY), 5, False),
    ]:
        pages[1][ASLEEP], pages[1][ASLEEP + 1] = asleep, wanted
        first.raise_to(READY, 5, first.with_counters([1]))
        assert bool(rung) == rings
        rung.clear()
    first.close()
    second.close()


def test_the_bell_of_a_rank_that_is_gone_may_be_rung():
    pages = [memoryview(bytearray(4096)).cast("Q") for _ in range(2)]
    first, second = Tokens(0, pages[0]), Tokens(1, pages[1])
    first.meet(1, pages[1], os.getpid(), second.bell)
    second.close()
    first.raise_to(READY, 1, first.with_counters([1]))
    first.close()


def test_no_descriptor_stays():
    before = len(os.listdir("/proc/self/fd"))
    pages = [memoryview(bytearray(4096)).cast("Q") for _ in range(2)]
    first, second = Words(0, pages[0]), Words(1, pages[1])
    first.meet(1, pages[1], os.getpid(), second.bell)
    first.close()
    second.close()
    assert len(os.listdir("/proc/self/fd")) == before
