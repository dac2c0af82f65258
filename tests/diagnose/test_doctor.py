"""`teachdist doctor` on jobs whose ranks are blocked while it looks."""

import contextlib
import io
import os
import re
import socket
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from ranks import shared_pool

from teachdist.diagnose import doctor, stacks
from teachdist.diagnose.survey import Survey, cards_in, leave_card, open_store
from teachdist.links import Card
from teachdist.links.board.layout import IDLE, LEFT, Position

LIMIT = 20.0


class Job:
    """Ranks that run `scene` in the background, until the test says that it has seen enough."""

    def __init__(self, scene, tmp_path, n=3, **settings):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        shared_pool(n, backend=None).run(os.getpid)  # they are there, so the clock may run
        self.flag = tmp_path / "seen enough"
        place = (n, self.port, str(self.flag), settings)
        self._thread = threading.Thread(target=self._run, args=(scene, place, n))

    def _run(self, scene, place, n):
        self.outcomes = shared_pool(n, backend=None).run(_rank, scene, place)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *exc):
        self.flag.touch()
        self._thread.join(LIMIT * 2)
        assert not self._thread.is_alive()

    def groups(self, *wanted, with_stacks=False, **where):
        """What the doctor sees, once it sees all of `wanted` in its report.

        A rank may not have come there yet, or, on a busy machine, be too late with its answer.
        """
        until = time.monotonic() + LIMIT
        while time.monotonic() < until:
            with contextlib.suppress(RuntimeError):  # the store is not there yet
                groups = [g for g in doctor.examine(**where) if str(self.port) in g.job]
                text = doctor.report(groups, with_stacks)
                if all(re.search(pattern, text) for pattern in wanted):
                    return groups
        raise AssertionError(f"never seen; the last report:\n{text}")


def _rank(scene, place):
    n, port, flag, settings = place
    from teachdist.backend import Options

    os.environ.update(settings.get("environment", {}))
    rank = int(os.environ["RANK"])
    dist.init_process_group(
        "teachdist",
        store=dist.TCPStore("127.0.0.1", port, n, rank == 0, timedelta(seconds=LIMIT)),
        rank=rank,
        world_size=n,
        timeout=timedelta(seconds=LIMIT),
        pg_options=Options(
            timeout=timedelta(seconds=LIMIT), hint_after=60, **settings.get("options", {})
        ),
    )
    try:
        return scene(rank, Path(flag))
    except RuntimeError as error:
        return str(error)
    finally:
        dist.destroy_process_group()
        for name in settings.get("environment", {}):
            os.environ.pop(name, None)


def dawdle(flag):
    while not flag.exists():
        threading.Event().wait(0.01)


def one_is_late(rank, flag):
    dist.all_reduce(torch.ones(4))
    if rank == 1:
        dawdle(flag)
    dist.barrier()
    return "done"


@pytest.mark.parametrize("where", ["host", "store", "job"])
def test_a_late_rank_is_named(where, tmp_path):
    cards = str(tmp_path / "job")
    settings = {"environment": {"TEACHDIST_JOB": cards}} if where == "job" else {}
    with Job(one_is_late, tmp_path, **settings) as job:
        how = {"host": {}, "store": {"store": f"127.0.0.1:{job.port}"}, "job": {"job": cards}}
        # Through its door the rank also says in which line it is.
        line = "" if where == "host" else " is in user code at test_doctor.py"
        groups = job.groups(f"ranks 0 and 2 are in call 2.*Not there: rank 1{line}", **how[where])
        text = doctor.report(groups)
        lines = text.splitlines()
        assert lines[0] == f'group "0" of the job at 127.0.0.1:{job.port}, 3 ranks'
        assert re.match(r"rank +pid +state +call +since +what +where", lines[1])
        assert re.match(r"0 +\d+ +in call +2 +\d+\.\d s +barrier\(\) +test_doctor.py", lines[2])
        assert re.match(
            r"1 +\d+ +user code +1 +\d+\.\d s +after all_reduce\(float32\[4\]", lines[3]
        )
    assert job.outcomes == ["done"] * 3
    if where == "job":
        assert cards_in(cards) == []
        assert list(Path(cards).iterdir()) == []


def test_ranks_of_another_host_are_asked_through_their_doors(tmp_path):
    with Job(one_is_late, tmp_path, environment={"TEACHDIST_HOST": "elsewhere"}) as job:
        address = f"127.0.0.1:{job.port}"
        there = "Not there: rank 1 is in user code at test_doctor.py"
        job.groups(there, "in dawdle", with_stacks=True, store=address)  # the stacks came along
    assert job.outcomes == ["done"] * 3


def test_the_command_line(tmp_path):
    with Job(one_is_late, tmp_path, n=2) as job:
        there = r"rank 0 is in call 2, barrier\(\).*Not there: rank 1 is in user code"
        job.groups(there, "in dawdle", with_stacks=True)
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            assert doctor.main(["--store", f"127.0.0.1:{job.port}", "--stacks"]) == 0
        assert "rank 0 is in call 2, barrier()" in out.getvalue()
        assert "in dawdle" in out.getvalue()


def test_wrong_addresses_are_said(capsys):
    assert doctor.main(["--store", "nowhere"]) == 2
    assert "a store's address is host:port, got 'nowhere'" in capsys.readouterr().err
    with pytest.raises(ValueError, match="host:port"):
        open_store("nowhere")


def test_a_directory_that_is_none(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TEACHDIST_JOB", str(tmp_path / "file"))
    card = Card(0, "here", 1, ("127.0.0.1", 1), b"secret", "1:1:0")
    with pytest.raises(ValueError, match=r"TEACHDIST_JOB=.*file: expected a directory"):
        leave_card(card, "0")


def test_groups_that_all_have_left_are_shown_only_if_there_are_no_others():
    def position(name, state):
        about = {"id": name, "group": name, "number": 0, "size": 1, "job": "j"}
        return Position(1, 0, state, None, about=about)

    survey = Survey()
    survey._pages(None, [position("old", LEFT)], 1, "here")
    assert [group.name for group in survey.groups()] == ["old"]
    survey._pages(None, [position("new", IDLE)], 1, "here")
    assert [group.name for group in survey.groups()] == ["new"]


def test_nothing_to_see(tmp_path):
    said = doctor.report(doctor.examine(job=str(tmp_path)))
    assert said.startswith("no ranks of backend teachdist are to be seen; ")
    assert "--store HOST:PORT" in said


def test_stacks_of_a_rank_that_is_blocked_in_compiled_code(tmp_path):
    """And the look does it no harm: the wait goes on and ends as it should."""

    def scene(rank, flag):
        dist.barrier()
        store = dist.distributed_c10d._get_default_store()
        if rank == 1:
            store.wait(["enough"], timedelta(seconds=LIMIT))
        else:
            dawdle(flag)
            store.set("enough", "")
        dist.barrier()
        return "done"

    with Job(scene, tmp_path, n=2) as job:
        groups = job.groups("all are in user code")
        pid = groups[0].seen[1].pid
        until = time.monotonic() + LIMIT
        while "in scene" not in (text := stacks.of(pid) or ""):
            assert time.monotonic() < until, text
        assert "most recent call first" in text
    assert job.outcomes == ["done"] * 2


def test_a_process_that_has_not_registered_is_left_alone():
    assert stacks.of(os.getppid()) is None


def test_a_mismatch_that_hangs_gloo_is_named(tmp_path):
    """The job's own backend is gloo; only its name was changed, and delegate= added."""

    def scene(rank, flag):
        dist.all_reduce(torch.ones(4))
        if rank == 1:
            dist.broadcast(torch.ones(4), 0)
        else:
            dist.all_reduce(torch.ones(4))
        return "computed something"

    with Job(scene, tmp_path, options={"delegate": "gloo"}) as job:
        pass
    for said in job.outcomes:
        assert "call 2: rank 1 is in broadcast(float32[4]" in said
        assert "ranks 0 and 2 are in all_reduce(float32[4], SUM) at test_doctor.py" in said


def test_delegated_calls_are_seen(tmp_path):
    with Job(one_is_late, tmp_path, options={"delegate": "gloo"}) as job:
        job.groups(r"ranks 0 and 2 are in call 2.*Not there: rank 1 is in user code")
    assert job.outcomes == ["done"] * 3


def test_a_rank_in_another_group_is_found(tmp_path):
    def scene(rank, flag):
        pair = dist.new_group([0, 1])
        dist.all_reduce(torch.ones(4))
        if rank == 1:
            dist.all_reduce(torch.ones(1), group=pair)
        if rank == 0:
            dawdle(flag)
            dist.all_reduce(torch.ones(1), group=pair)
        dist.barrier()
        return "done"

    with Job(scene, tmp_path) as job:
        job.groups(r'rank 1 is in another group: "1", call 1, in all_reduce\(float32\[1\], SUM\)')
    assert job.outcomes == ["done"] * 3
