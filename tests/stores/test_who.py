import dataclasses
import os
import subprocess
import sys

from stores.kinds import pid_of_nobody
from teachdist.stores.who import Process, is_alive, me


def test_me(monkeypatch):
    monkeypatch.setenv("RANK", "3")
    assert str(me()) == f"rank 3, pid {os.getpid()} on {me().host}"
    monkeypatch.delenv("RANK")
    assert str(me()) == f"pid {os.getpid()} on {me().host}"
    assert me().same(me())


def test_a_living_process():
    assert is_alive(me())
    assert is_alive(dataclasses.replace(me(), rank="7"))


def test_a_dead_process():
    assert is_alive(dataclasses.replace(me(), pid=pid_of_nobody())) is False


def test_a_pid_that_is_used_again():
    assert is_alive(dataclasses.replace(me(), started=me().started - 1)) is False


def test_a_process_that_ended_and_was_not_reaped():
    process = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE)
    process.stdout.read()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert is_alive(dataclasses.replace(me(), pid=process.pid)) is False
    process.communicate()


def test_elsewhere():
    assert is_alive(dataclasses.replace(me(), host="elsewhere")) is None
    assert is_alive(dataclasses.replace(me(), space="another container")) is None


def test_there_and_back():
    assert Process.from_dict(me().as_dict()) == me()
    assert Process.from_dict({}).host == "?"
    assert len(Process.from_dict({"host": "x" * 1000}).host) == 255
