"""The board: what a rank writes is what others read, at any time; nothing of it stays behind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from teachdist.links.board import layout as at
from teachdist.links.board.layout import CALLS, IDLE, IN_CALL, LEFT, MESSAGES, Abort
from teachdist.links.board.reader import BoardReader, alive, positions_of
from teachdist.links.board.writer import AT_REST, BoardWriter, own_pages

ROOT = Path(__file__).resolve().parents[3]
ABOUT = {"id": "1/dp/1", "group": "dp", "size": 2, "ranks": [4, 7]}


@pytest.fixture
def page():
    made = BoardWriter(1, ABOUT)
    yield made
    made.close()


@pytest.fixture
def reader(page):
    seen = BoardReader(page.place)
    yield seen
    seen.close()


def test_a_new_page_says_whose_it_is_and_nothing_else(page, reader):
    position = reader.read()
    assert (position.pid, position.rank, position.state) == (os.getpid(), 1, IDLE)
    assert position.about == ABOUT
    assert (position.entry, position.abort, position.calls) == (None, None, {})
    assert position.words() == "in user code, before any call of this group"


def test_a_call_is_seen_before_and_after(page, reader):
    page.write(IN_CALL, 0, 1, "all_reduce(float32[10], SUM) at train.py:29", 77)
    inside = reader.read()
    assert (inside.state, inside.sequence, inside.entry.fingerprint) == (IN_CALL, 1, 77)
    assert (inside.entry.what, inside.entry.site) == (
        "all_reduce(float32[10], SUM)",
        "train.py:29",
    )
    assert inside.words().startswith(
        "in all_reduce(float32[10], SUM) at train.py:29, call 1, for 0"
    )
    page.write(IDLE, 0, 1, "all_reduce(float32[10], SUM) at train.py:29", 77)
    assert reader.read().state == IDLE
    assert (
        reader.read().words().endswith("after all_reduce(float32[10], SUM) at train.py:29, call 1")
    )


def test_the_last_calls_are_kept(page, reader):
    for number in range(1, CALLS + 4):
        page.write(IDLE, 0, number, f"barrier() at a.py:{number}", number)
    calls = reader.read().calls
    assert sorted(calls) == list(range(4, CALLS + 4))
    assert calls[5].site == "a.py:5"


def test_the_fingerprint_of_one_call(page, reader):
    assert reader.glance(1)[1] is None
    page.write(IDLE, 3, 1, "barrier()", 11)
    assert reader.glance(1)[1] == (3, 11)
    assert reader.glance(2)[1] is None
    page.write(IDLE, 3, 1 + CALLS, "barrier()", 12)
    assert reader.glance(1)[1] == (-1, 0), "it is past that, and has forgotten it"


def test_sends_have_slots_of_their_own(page, reader):
    page.write(IDLE, 0, 1, "barrier() at a.py:1", 5)
    tokens = [page.begin_message(0, f"send(x) at a.py:{line}") for line in range(MESSAGES)]
    assert reader.read().entry.p2p
    assert reader.read().sequence == 1, "a send is no collective"
    for token in tokens:
        page.end_message(token)
    assert reader.read().state == IDLE


def test_for_whom_it_waits_is_forgotten_with_the_call(page, reader):
    page.write(IN_CALL, 0, 1, "barrier()")
    page.awaiting([0, 3])
    assert reader.read().awaits == (0, 3)
    page.write(IDLE, 0, 1, "barrier()")
    page.write(IN_CALL, 0, 2, "barrier()")
    assert reader.read().awaits == ()


def test_a_failure_is_read_and_forgotten(page, reader):
    failure = Abort(2, 7, "rank 7 failed: " + "x" * 5000, 12.5, True)
    page.abort(failure)
    seen = reader.abort()
    assert (seen.generation, seen.culprit, seen.when, seen.whole) == (2, 7, 12.5, True)
    assert seen.message == failure.message[: at.ABORT_MAX]
    page.clear_abort()
    assert reader.abort() is None


def test_words_of_any_length_and_alphabet(page, reader):
    page.write(IN_CALL, 0, 1, "é" * 1000)
    assert reader.read().call.startswith("ééé")
    page.describe({"group": "größe", "ranks": list(range(5000))})
    assert reader.read().about == {"group": "größe"}, "a list that is too long is left out"


def test_an_entry_that_is_being_written_is_not_read(page, reader):
    """A reader of another process may come in the middle: then it takes no entry for two halves."""
    page.write(IDLE, 0, 1, "barrier()", 5)
    start = at.SLOTS_AT + at.SLOT
    page._map[start : start + 8] = (999).to_bytes(8, "little")
    assert reader.read().calls == {}


def test_leaving(page, reader):
    page.write(IDLE, 0, 1, "barrier()")
    page.write(LEFT, 0, 1, "")
    assert reader.read().state == LEFT


def test_a_page_that_now_belongs_to_another_group_says_nothing_of_it():
    keeps_the_board, first = BoardWriter(0), BoardWriter(1, ABOUT)
    reader = BoardReader(first.place)
    first.close()
    for _ in range(AT_REST):
        BoardWriter(0).close()
    second = BoardWriter(0, {"group": "tp"})
    try:
        assert second.place == first.place
        second.write(IN_CALL, 0, 1, "barrier()", 5)
        second.abort(Abort(0, 0, "rank 0 failed", 1.0))
        assert reader.read().state == LEFT
        assert reader.abort() is None
        assert reader.glance(1)[1] == (-1, 0)
    finally:
        second.close()
        keeps_the_board.close()


def test_the_page_of_a_group_that_was_left_can_be_read_for_a_while(page):
    """A rank that comes to the last call later still learns what the others called there."""
    left = BoardWriter(0)
    reader = BoardReader(left.place)
    left.write(IN_CALL, 0, 1, "broadcast(float32[4], src=0) at train.py:7", 77)
    left.leave()
    left.close()
    for _ in range(AT_REST):
        BoardWriter(0).close()
    assert reader.glance(1) == (False, (0, 77))
    places = set()
    for _ in range(3 * AT_REST):
        one = BoardWriter(0)
        places.add(one.place)
        one.close()
    assert len(places) <= AT_REST + 2  # the board does not grow for ever
    assert reader.glance(1) == (False, (-1, 0))
    reader.close()


def test_no_descriptor_is_left(page):
    def descriptors():
        return len(os.listdir("/proc/self/fd"))

    before, known = descriptors(), own_pages()
    pages = [BoardWriter(rank) for rank in range(20)]
    readers = [BoardReader(one.place) for one in pages]
    assert {reader.read().rank for reader in readers} == set(range(20))
    assert len(own_pages()) == len(known) + 20
    for one in (*pages, *readers):
        one.close()
    assert descriptors() <= before + 1  # the mapping of the whole board may still be there
    assert own_pages() == known


def test_a_page_that_is_gone():
    code = (  # in a process of its own, whose board goes with its last page
        "from teachdist.links.board.writer import BoardWriter\n"
        "from teachdist.links.board.reader import BoardReader\n"
        "made = BoardWriter(0)\n"
        "made.close()\n"
        "BoardReader(made.place)\n"
    )
    other = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "FileNotFoundError" in other.stderr.splitlines()[-1]


def test_another_process_is_seen_while_it_is_stopped():
    """And what it wrote goes with it: nothing is left under /dev/shm."""
    code = (
        "import os, signal\n"
        "from teachdist.links.board.writer import BoardWriter\n"
        "page = BoardWriter(3, {'group': 'world', 'id': '1'})\n"
        "page.write(1, 0, 1, 'barrier() at a.py:1', 5)\n"
        "print(page.place, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGSTOP)\n"
    )
    before = set(os.listdir("/dev/shm"))
    other = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        place = other.stdout.readline().strip()
        (position,) = positions_of(other.pid)
        assert position.call == "barrier() at a.py:1"
        reader = BoardReader(place)
        assert alive(other.pid)
    finally:
        other.kill()
        other.communicate()
    assert not alive(other.pid)
    assert reader.read().call == "barrier() at a.py:1", "its last words, for who has looked before"
    assert not [n for n in set(os.listdir("/dev/shm")) - before if "teachdist" in n]


def test_an_entry_that_is_being_written_has_no_fingerprint_yet():
    """The number stands there before the fingerprint does: that must not look like another call."""
    from teachdist.links.board import layout as at

    memory, slot = bytearray(at.PAGE), at.SLOTS_AT + 7 * at.SLOT
    at.ENTRY.pack_into(memory, slot, 9, 0, 1, 1, 3, 7, 0.5, 1234, b"x", 9)
    assert at.fingerprint(memoryview(memory).cast("Q"), 7) == (3, 1234)
    for end in (slot + 8, slot + 32, slot + 40, slot + at.ENTRY.size - 1):  # so far it has come
        half = bytearray(memory)
        half[end : slot + at.ENTRY.size] = bytes(slot + at.ENTRY.size - end)
        half[slot + at.ENTRY.size - 8 : slot + at.ENTRY.size] = bytes(8)
        assert at.fingerprint(memoryview(half).cast("Q"), 7) is None


def test_nobody_ever_sees_half_of_what_is_written(page, reader):
    """Another process looks again and again while it is written: nothing is there, or all of it."""
    rounds, (heard, tell) = 3000, os.pipe()
    child = os.fork()
    if child == 0:
        for number in range(rounds):
            page.offer(number, 77, 78)
            os.read(heard, 1)
            page.abort(Abort(number, 3, "rank 3 fell", 9.0))
            os.read(heard, 1)
            page.clear_abort()
            page.describe(ABOUT)
        os._exit(0)
    try:
        for number in range(rounds):
            offer = abort = None
            while offer is None or offer[0] < number:
                offer = reader.offer()
                assert reader.read().state == IDLE
            assert offer == (number, 77, 78)
            os.write(tell, b"x")
            while abort is None:
                abort = reader.abort()
            assert abort == Abort(number, 3, "rank 3 fell", 9.0)
            os.write(tell, b"x")
    finally:
        os.write(tell, b"x" * 2 * rounds)  # whatever happened, the child comes to its end
        os.waitpid(child, 0)
        os.close(heard)
        os.close(tell)
