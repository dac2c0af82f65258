"""What a waiting rank says, and how its wait ends, on real ranks."""

import os
import signal
import threading
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from ranks import RankDiedError, shared_pool
from scenes import Outcome, _play, play

from teachdist.backend import Options, communicators
from teachdist.diagnose import View
from teachdist.diagnose.snapshot import DEAD, GONE, roll

SOON = {"hint_after": 0.3}


def until_said(rank, text):
    """Stay in user code until another rank has said something: scenes need no sleep for that."""
    store = communicators()[0].shared
    while not store.check([text]):
        threading.Event().wait(0.01)


def tell(text):
    communicators()[0].shared.set(text, "")


def log_of(outcomes, rank):
    return "\n".join(outcomes[rank].log)


class TellOnHint:
    """Lets ranks know through the store that this rank has logged its hint."""

    def __init__(self, rank):
        self.rank = rank

    def __enter__(self):
        import logging

        rank = self.rank

        class Handler(logging.Handler):
            def emit(self, record):
                if "has waited" in record.getMessage():
                    tell(f"hinted/{rank}")

        self.handler = Handler()
        logging.getLogger("teachdist").addHandler(self.handler)

    def __exit__(self, *exc):
        import logging

        logging.getLogger("teachdist").removeHandler(self.handler)


def late(rank, culprit):
    """One rank stays in user code until all others have said that they wait."""
    if rank == culprit:
        for other in range(culprit):
            until_said(rank, f"hinted/{other}")
    with TellOnHint(rank):
        dist.barrier()


@pytest.mark.parametrize("hosts", [None, "aab"])
def test_a_waiting_rank_says_for_whom_and_where_that_one_is(hosts):
    outcomes = play(late, 2, n=3, options=SOON, hosts=hosts)
    assert [outcome.error for outcome in outcomes] == [None] * 3
    said = log_of(outcomes, 0) + log_of(outcomes, 1)
    assert "s in barrier() at test_watchdog.py" in said
    assert '(group "0", call 1): ' in said
    assert "rank 2 is in user code at test_watchdog.py" in said
    assert "in until_said, before any call of this group." in said
    assert log_of(outcomes, 2) == ""


def test_a_call_that_goes_well_says_nothing():
    def scene(rank):
        for _ in range(50):
            dist.all_reduce(torch.ones(3))

    assert [outcome.said for outcome in play(scene, n=3, options={"hint_after": 60})] == [""] * 3


def test_a_rank_in_another_group_is_found_there():
    """And that the two wait for each other, each in a group of its own."""

    def scene(rank):
        pair = dist.new_group([0, 1], pg_options=Options(hint_after=0.3))
        dist.all_reduce(torch.ones(1))
        if rank == 1:
            dist.all_reduce(torch.ones(1), group=pair)
        dist.barrier()

    outcomes = play(scene, n=3, options=SOON, timeout=1.5)
    said = log_of(outcomes, 0) + log_of(outcomes, 1) + log_of(outcomes, 2)
    assert 'rank 1 is in another group: "1", call 1, in all_reduce(float32[1], SUM)' in said
    assert "rank 0 is in another group" in said
    assert "wait for each other in two groups" in said


def test_a_time_out_ends_with_the_sentence_on_every_rank():
    def scene(rank):
        if rank == 1:
            until_said(rank, "gave up")
        try:
            dist.all_reduce(torch.ones(2))
        finally:
            tell("gave up")

    outcomes = play(scene, n=2, timeout=0.5)
    sentence = (
        'group "0", call 1: rank 0 gave up in all_reduce(float32[2], SUM) at test_watchdog.py:'
    )
    for outcome in outcomes:
        assert isinstance(outcome.error, dist.DistBackendError)
        assert sentence in outcome.said
        assert "rank 1 is in user code at test_watchdog.py" in outcome.said
    assert type(outcomes[1].error).__name__ == "Released"


@pytest.mark.parametrize("hosts", [None, "abc"])
def test_the_first_culprit_is_named_on_all_hosts(hosts):
    def scene(rank):
        dist.barrier()
        if rank == 2:
            raise ValueError("bad batch")
        dist.all_reduce(torch.ones(2))

    outcomes = play(scene, n=3, hosts=hosts)
    for outcome in outcomes[:2]:
        assert str(outcome.error).startswith(
            "rank 2 failed: ValueError: bad batch, at test_watchdog.py:"
        )
        assert outcome.seconds < 2


def test_who_was_released_passes_on_the_first_culprit():
    """Rank 0 waits for rank 1, who waits for rank 2, who fails: rank 0 hears of rank 2."""

    def scene(rank):
        left, right = dist.new_group([0, 1]), dist.new_group([1, 2])
        if rank == 2:
            raise ValueError("bad batch")
        dist.all_reduce(torch.ones(1), group=right if rank == 1 else left)

    outcomes = play(scene, n=3)
    for outcome in outcomes[:2]:
        assert str(outcome.error).startswith("rank 2 failed: ValueError: bad batch")


def test_a_rank_that_failed_before_anybody_looked():
    def scene(rank):
        if rank == 1:
            raise ValueError("at once")
        until_said(rank, "never") if rank == 3 else dist.barrier()

    outcomes = play(scene, n=2)
    assert str(outcomes[0].error).startswith("rank 1 failed: ValueError: at once")


def test_a_rank_that_left_is_named():
    def scene(rank):
        if rank == 0:
            dist.all_reduce(torch.ones(1))

    waiting, _ = play(scene, n=2)
    assert isinstance(waiting.error, dist.DistBackendError)
    assert "rank 1 has finished: it left the group; rank 0 was in all_reduce" in waiting.said


def test_what_was_sent_before_leaving_arrives():
    """A root that has given its part and left must not be taken for one that is missing."""

    def scene(rank):
        x = torch.full((3,), float(rank))
        dist.barrier()
        if rank != 0:
            until_said(rank, "given")
        dist.broadcast(x, 0)
        if rank == 0:
            tell("given")
        return x[0].item()

    assert [outcome.value for outcome in play(scene, n=3)] == [0, 0, 0]


def test_a_killed_rank_is_named():
    def scene(rank):
        dist.barrier()
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        dist.all_reduce(torch.ones(2))

    pool = shared_pool(3, backend=None)
    outcomes = pool.outcomes(_play, scene, (), ("killed", 3, 30.0, {}, None))
    assert isinstance(outcomes[1], RankDiedError)
    for outcome in (outcomes[0], outcomes[2]):
        assert isinstance(outcome, Outcome)
        assert isinstance(outcome.error, dist.DistError)
        assert "rank 1 is dead: the process has ended" in outcome.said
        assert outcome.seconds < 2.5


def test_ctrl_c_ends_the_wait_and_frees_the_others():
    def scene(rank):
        dist.barrier()
        if rank == 0:
            timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
            signal.signal(signal.SIGINT, signal.default_int_handler)
            timer.start()
        if rank == 1:
            until_said(rank, "freed")
            return
        try:
            dist.all_reduce(torch.ones(2))
        finally:
            if rank == 2:
                tell("freed")

    outcomes = play(scene, n=3)
    assert isinstance(outcomes[0].error, KeyboardInterrupt)
    assert "rank 0 was interrupted in all_reduce(float32[2], SUM)" in outcomes[2].said


def test_receives_in_a_circle_are_named():
    def scene(rank):
        dist.recv(torch.ones(3), (rank + 1) % 3)

    outcomes = play(scene, n=3, timeout=1.0, options=SOON)
    circle = "ranks 0-2 wait for each other, so nothing will ever come."
    assert any(circle in outcome.said for outcome in outcomes)


def test_a_message_that_does_not_fit_names_both_sides():
    def scene(rank):
        if rank == 0:
            dist.send(torch.ones(3), 1)
        else:
            dist.recv(torch.ones(3, dtype=torch.float64), 0)

    _, receiver = play(scene)
    assert "rank 1 is in recv(float64[3], src=rank 0, tag=0) at test_watchdog.py" in receiver.said
    assert (
        "rank 0 sent with send(float32[3], dst=rank 1, tag=0) at test_watchdog.py" in receiver.said
    )


def test_on_the_good_path_nobody_looks_around_and_nobody_asks_the_store():
    """Of the diagnosis only the line of the call is looked up; that is all that a call pays."""

    def scene(rank):
        import sys
        from collections import Counter

        from teachdist.links import waiting

        ran = Counter()

        def profile(frame, event, arg):
            code = frame.f_code
            if event == "call" and "/teachdist/diagnose/" in code.co_filename:
                ran[f"{code.co_filename.rpartition('/')[2]}:{code.co_name}"] += 1
            if event == "c_call" and isinstance(getattr(arg, "__self__", None), dist.Store):
                ran[f"store.{arg.__name__}"] += 1

        x, before = torch.ones(3), waiting.TICK
        waiting.TICK = 60.0  # on a busy machine a call may last so long that a rank looks around
        try:
            for _ in range(2):  # the first call of a group meets, the second writes its script
                dist.all_reduce(x)
            sys.setprofile(profile)
            for _ in range(20):
                dist.all_reduce(x)
                dist.send(x, 1 - rank)
                dist.recv(x, 1 - rank)
            for _ in range(3):
                dist.all_reduce(x, async_op=True).wait()
        finally:
            sys.setprofile(None)
            waiting.TICK = before
        return dict(ran)

    for outcome in play(scene):
        assert outcome.error is None, outcome.said
        seen = {what for what in outcome.value if not what.startswith("call_site.py")}
        assert "call_site.py:call_site" in outcome.value
        # A message gets a watch, which nobody asks.
        assert seen <= {"poison.py:on", "watchdog.py:__init__"}


class Stopped:
    """Ranks freeze each other: SIGSTOP now, SIGCONT when this one is through."""

    def __init__(self, pid):
        self.pid = pid

    def __enter__(self):
        os.kill(self.pid, signal.SIGSTOP)

    def __exit__(self, *exc):
        os.kill(self.pid, signal.SIGCONT)


@pytest.mark.parametrize("hosts", [None, "ab"])
@pytest.mark.parametrize("what", ["all_reduce", "first send", "receive"])
def test_a_stopped_rank_is_named_in_time(what, hosts):
    """It accepts connections (the system does that for it), but says nothing any more."""
    calls = {
        "all_reduce": lambda: dist.all_reduce(torch.ones(2)),
        "first send": lambda: dist.send(torch.ones(300_000), 0),
        "receive": lambda: dist.recv(torch.ones(2), 0),
    }

    def scene(rank):
        store = communicators()[0].shared
        dist.barrier()
        if rank == 0:
            store.set("pid", str(os.getpid()))
            store.wait(["over"])
            return None
        pid = int(store.get("pid"))
        try:
            with Stopped(pid):
                calls[what]()
        except dist.DistError as error:
            return str(error)
        finally:  # not before it goes on: it may have been stopped with the store's file locked
            store.set("over", "")

    _, other = play(scene, options=SOON, hosts=hosts, timeout=1.5)
    assert "gave up in" in other.value
    assert "has waited" in log_of([other], 0)
    assert other.seconds < 10
    where = "is on another host and does not answer" if hosts else "is in user code"
    assert f"rank 0 {where}" in other.value


@pytest.mark.parametrize(("ended", "state"), [(True, DEAD), (False, GONE)])
def test_a_rank_whose_page_is_gone_has_left_only_if_its_process_lives(ended, state):
    peers = SimpleNamespace(
        rank=0,
        known=lambda rank: "its card",
        position=lambda rank: None,
        left=lambda rank: True,
        gone=lambda rank: ended,
    )
    (place,) = roll(View("g", peers, None, [0, 1]), [1])
    assert (place.rank, place.state) == (1, state)
