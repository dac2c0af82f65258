"""The sentences, from places that are written down here: no rank is needed."""

import time
from dataclasses import replace

from teachdist.diagnose import verdict
from teachdist.diagnose.snapshot import (
    ABSENT,
    CALL,
    CLOSED,
    DEAD,
    GONE,
    SILENT,
    USER,
    Elsewhere,
    Place,
)
from teachdist.links.board.layout import IDLE, IN_CALL, Entry, Position

SUM, CAST = "all_reduce(float32[4], SUM)", "broadcast(float32[4], src=0)"


def entry(number, call, fingerprint=None, state=IN_CALL, p2p=False):
    mark = hash(call.partition(" at ")[0]) if fingerprint is None else fingerprint
    return Entry(number + 1, state, 0, number, time.monotonic(), mark, call, p2p)


def place(rank, state, *entries, size=4, awaits=(), **more):
    last = max(entries, key=lambda e: (e.state, e.counter), default=None)
    calls = {e.number: e for e in entries if not e.p2p}
    about = {"group": "0", "ranks": list(range(size))}
    shown = IN_CALL if state == CALL else IDLE
    return Place(rank, state, Position(1, rank, shown, last, None, awaits, calls, about), **more)


def test_the_sentence_of_a_mismatch_names_both_sides():
    """The few first: they are the likelier cause."""
    entries = {0: f"{SUM} at train.py:29", 1: f"{CAST} at train.py:31", 2: f"{SUM} at train.py:29"}
    assert verdict.mismatch("dp", 7, entries) == (
        'group "dp", call 7: rank 1 is in broadcast(float32[4], src=0) at train.py:31; ranks 0 and '
        "2 are in all_reduce(float32[4], SUM) at train.py:29. Collectives match by order: every "
        "rank of the group must make the same calls."
    )


def test_the_same_call_with_other_arguments():
    entries = {0: f"{SUM} at a.py:1", 1: "all_reduce(float32[5], SUM) at a.py:1"}
    assert "The same call must have the same arguments" in verdict.mismatch("0", 0, entries)


def test_the_first_call_at_which_ranks_parted():
    calls = {
        0: {0: entry(0, f"{SUM} at a.py:1"), 1: entry(1, f"{SUM} at a.py:2")},
        1: {0: entry(0, f"{SUM} at a.py:1"), 1: entry(1, f"{CAST} at a.py:3")},
    }
    number, entries = verdict.parted(calls)
    assert number == 1
    assert entries[1].what == CAST
    assert verdict.parted({0: calls[0], 1: calls[0]}) is None
    assert verdict.parted({0: calls[0], 1: {}}) is None


def test_the_clue_is_the_first_call_at_different_lines():
    calls = {
        rank: {0: entry(0, "barrier() at a.py:9"), 1: entry(1, f"barrier() at a.py:{line}")}
        for rank, line in ((0, 12), (1, 14), (2, 14))
    }
    assert verdict.clue(calls) == (
        " They may have parted at call 1: barrier() was called at a.py:12 on rank 0, a.py:14 on "
        "ranks 1 and 2."
    )
    assert verdict.clue(calls, before=1) == ""
    calls[0][1] = entry(1, "all_reduce(float32[1]) at a.py:49")
    assert verdict.clue(calls) == (
        " They may have parted at call 1: rank 0 called all_reduce(float32[1]) at a.py:49, "
        "ranks 1 and 2 called barrier() at a.py:14."
    )
    assert verdict.clue({0: calls[0]}) == ""


def test_whereabouts_of_every_kind():
    places = [
        place(0, USER, line="data.py:57, in load"),
        place(1, USER, entry(6, "barrier() at a.py:3", state=IDLE), line="data.py:57, in load"),
        place(2, USER, line="stopped in the debugger at a.py:8"),
        Place(3, ABSENT),
        Place(4, DEAD),
        place(5, GONE, entry(2, "barrier() at a.py:3", state=IDLE)),
        Place(6, SILENT),
        Place(7, CLOSED),
        place(8, USER, elsewhere=Elsewhere("tp", entry(3, f"{SUM} at b.py:4"))),
        Place(9, DEAD),
        place(10, USER, entry(6, "barrier() at cell 3, line 2", state=IDLE), line="idle"),
    ]
    assert verdict.whereabouts(places) == (
        "rank 0 is in user code at data.py:57, in load, before any call of this group; "
        "rank 1 is in user code at data.py:57, in load, after call 6, barrier() at a.py:3; "
        "rank 2 is stopped in the debugger at a.py:8; "
        "rank 3 has not joined the group; "
        "ranks 4 and 9 are dead: the process has ended; "
        "rank 5 has finished: it left the group after call 2, barrier() at a.py:3; "
        "rank 6 is on another host and does not answer; "
        "rank 7 is gone: nobody answers at its address any more; "
        'rank 8 is in another group: "tp", call 3, in all_reduce(float32[4], SUM) at b.py:4; '
        "rank 10 is idle, after call 6, barrier() at cell 3, line 2"
    )


def test_a_circle_of_three():
    def waits(rank, peer):
        call = f"recv(float32[4], src=rank {peer}, tag=0) at a.py:5"
        return place(rank, CALL, entry(0, call, p2p=True), awaits=(peer,), size=3)

    assert verdict.circle([waits(0, 1), waits(1, 2), waits(2, 0)]) == [0, 1, 2]
    assert verdict.circle([waits(0, 1), waits(1, 2), place(2, USER)]) == []
    said = verdict.verdict("0", [waits(0, 1), waits(1, 2), waits(2, 0)])
    assert said.startswith('group "0": ranks 0-2 wait for each other: rank 0 waits in recv(')


def test_verdict_names_who_is_missing():
    inside = [place(rank, CALL, entry(7, f"{SUM} at a.py:9")) for rank in (0, 2, 3)]
    late = place(1, USER, entry(6, "barrier() at a.py:3", state=IDLE), line="data.py:57")
    assert verdict.verdict("dp", [inside[0], late, *inside[1:]]) == (
        f'group "dp": ranks 0, 2 and 3 are in call 7, {SUM} at a.py:9. Not there: rank 1 is in '
        "user code at data.py:57, after call 6, barrier() at a.py:3."
    )


def test_verdict_of_a_mismatch_says_who_is_blocked():
    places = [
        place(0, CALL, entry(2, f"{SUM} at a.py:9")),
        place(1, CALL, entry(2, f"{CAST} at b:1")),
    ]
    said = verdict.verdict("0", places)
    assert said.startswith('group "0", call 2: rank 1 is in broadcast')
    assert said.endswith("Blocked: ranks 0 and 1.")


def test_verdict_of_groups_used_in_another_order():
    here = place(0, CALL, entry(1, "barrier() at a.py:9"))
    there = Elsewhere("tp", entry(0, f"{SUM} at a.py:8"), awaits=(0,))
    said = verdict.verdict("0", [here, place(1, USER, elsewhere=there)])
    assert "ranks 0 and 1 wait for each other in two groups" in said


def test_verdicts_when_nobody_waits():
    busy = [place(rank, CALL, entry(1, f"{SUM} at a.py:9")) for rank in range(2)]
    assert verdict.verdict("0", busy).endswith("it is under way.")
    assert "all are in user code" in verdict.verdict("0", [place(0, USER), place(1, USER)])
    assert "all ranks have left" in verdict.verdict("0", [Place(0, GONE), Place(1, GONE)])
    assert "rank 1 is dead" in verdict.verdict("0", [place(0, USER), Place(1, DEAD)])


def test_equal_calls_by_different_algorithms():
    calls = [replace(entry(3, "all_reduce(x) at a.py:1"), how=how) for how in ("ring", "tree")]
    entries = {0: calls[0], 1: calls[1], 2: calls[1]}
    assert verdict.parted({rank: {3: each} for rank, each in entries.items()}) == (3, entries)
    assert verdict.mismatch("dp", 3, entries) == (
        'group "dp", call 3: rank 0 is in all_reduce(x) by ring at a.py:1; ranks 1 and 2 are in '
        "all_reduce(x) by tree at a.py:1. All ranks of the group must choose the same algorithm, "
        "by teachdist.use, Options or the environment."
    )
    unknown = {0: calls[0], 1: replace(calls[0], how="")}  # it has not chosen yet
    assert verdict.parted({rank: {3: each} for rank, each in unknown.items()}) is None


def test_a_circle_of_one():
    assert verdict.each_other([0]) == "rank 0 waits for itself"
    assert verdict.each_other([0, 2]) == "ranks 0 and 2 wait for each other"
