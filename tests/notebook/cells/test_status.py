import time

import pytest
from clusters import RANKS, needs_release

from teachdist.notebook import RanksError
from teachdist.notebook.cells.status import RankStatus, Status
from teachdist.notebook.show import show


def wait_for(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "it never came to that"


def test_idle(cluster):
    status = cluster.status()
    assert str(status) == f"[ranks 0-{RANKS - 1}] idle"
    assert [one.rank for one in status] == list(range(RANKS))
    assert len({one.pid for one in status}) == RANKS


def test_a_blocked_rank_answers_with_its_line(cluster):
    asked = cluster.execute("import time\ndef nap():\n    time.sleep(100)\nif rank == 1: nap()")
    wait_for(lambda: asked[0].done and asked[2].done and cluster.status()[1].state == "busy")
    status = cluster.status()
    assert [one.state for one in status] == ["idle", "busy", "idle"]
    assert "line 3: time.sleep(100)" in status[1].text
    cluster.interrupt()
    with pytest.raises(RanksError):
        cluster.wait(asked)


@needs_release
def test_who_waits_for_whom(cluster):
    cell = "import time\nif rank == 2: time.sleep(100)\nelse: dist.barrier()"
    asked = cluster.execute(cell)
    wait_for(lambda: "ranks 0 and 1 are in call" in cluster.status().verdict)
    status = cluster.status()
    assert "Not there: rank 2" in status.verdict
    assert "line 2: if rank == 2: time.sleep(100)" in status[2].text
    assert "line 3: else: dist.barrier()" in status[0].text
    assert str(status).endswith(status.verdict)
    cluster.interrupt()
    with pytest.raises(RanksError):
        cluster.wait(asked)


def test_text_of_ranks_that_cannot_answer():
    status = Status(
        [
            RankStatus(0, "busy", "cell 1, line 2: f()", 3.2),
            RankStatus(1, "dead", "its process ended (killed, or out of memory)"),
        ]
    )
    assert str(status) == (
        "[rank 0] cell 1, line 2: f()  (for 3 s)\n"
        "[rank 1] its process ended (killed, or out of memory)"
    )


def test_a_status_is_a_picture_that_is_not_stored_when_it_tells_times(monkeypatch):
    monkeypatch.setenv("TEACHDIST_LIVE", "0")
    resting, working = (
        Status([RankStatus(0, "idle", "idle")]),
        Status([RankStatus(0, "busy", "cell 1, line 2: f()", 3.2)]),
    )
    assert "image/svg" in show(resting)._repr_mimebundle_()["text/html"]
    assert show(working)._repr_mimebundle_() == {
        "text/plain": "(measured times: run this cell to see yours)"
    }
    assert "cell 1, line 2: f()" in show(working).svgs[0]
