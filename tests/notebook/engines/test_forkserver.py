import os
import signal
import time

from teachdist.notebook.engines import forkserver


def test_an_engine_that_cannot_start_is_given_up(monkeypatch, capsys):
    monkeypatch.setattr(forkserver, "_serve", lambda *_: os._exit(3))
    server = forkserver.ForkServer(1, [])
    server._fork(0)
    forks = 1
    deadline = time.monotonic() + 20
    while server.children:
        assert time.monotonic() < deadline
        before = set(server.children)
        server._replace_dead()
        forks += bool(set(server.children) - before)
    assert forks == forkserver.TRIES
    assert server.stopping
    assert capsys.readouterr().out == "rank 0 ended 3 times at its start, exit code 3\n"


def test_a_rank_that_dies_comes_back_under_its_id(cluster):
    [pid] = cluster.ask(os.getpid, on=[1])
    old = cluster.client._engines[1]
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 20
    while cluster.client._engines.get(1) in (None, old):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert cluster.client.ids == [0, 1, 2]
    cluster.restart()
