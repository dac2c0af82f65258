"""The server, spoken to in bytes."""

import errno
import json
import os
import socket
import subprocess
import sys
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stores.kinds import open_files

from teachdist.stores.tcp_store import wire
from teachdist.stores.tcp_store.server import Server
from teachdist.stores.who import me

HELLO = wire.request("VALIDATE", wire.MAGIC)


@pytest.fixture
def server():
    server = Server("127.0.0.1", 0)
    yield server
    server.close()


class Caller:
    """A client that sends what it likes."""

    def __init__(self, server, hello=HELLO):
        self.sock = socket.create_connection(("127.0.0.1", server.port), timeout=20)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.sendall(hello)

    def ask(self, name, *arguments):
        self.sock.sendall(wire.request(name, *arguments))
        op = wire.BY_NAME[name]
        return self.hear(op, arguments) if op.reply else None

    def hear(self, op, arguments=()):
        reader = wire.Reader(lambda: wire.read_reply(op, arguments))
        while True:
            data = self.sock.recv(1)
            assert data, "the server hung up"
            for message in reader.feed(data):
                return message

    def is_hung_up_on(self):
        try:
            while self.sock.recv(100):  # answers that were given before
                pass
        except ConnectionResetError:
            pass
        return True

    def close(self):
        self.sock.close()


@pytest.fixture
def call(server, exits):
    """Makes callers."""

    def call(hello=HELLO):
        caller = Caller(server, hello)
        exits.callback(caller.close)
        return caller

    return call


def wait_until(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


def test_every_operation(call):
    one = call()
    assert one.ask("PING", 12345) == 12345
    assert one.ask("SET", b"/k", b"v") is None
    assert one.ask("GET", b"/k") == b"v"
    assert one.ask("GET", b"/absent") == b""
    assert one.ask("COMPARE_SET", b"/k", b"v", b"w") == b"w"
    assert one.ask("ADD", b"/n", -3) == -3
    assert one.ask("CHECK", [b"/k", b"/n"]) == wire.READY
    assert one.ask("CHECK", [b"/k", b"/absent"]) == wire.NOT_READY
    assert one.ask("WAIT", [b"/k"]) == wire.STOP_WAITING
    assert one.ask("APPEND", b"/k", b"!") is None
    assert one.ask("MULTI_GET", [b"/k", b"/n", b"/absent"]) == [b"w!", b"-3", b""]
    assert one.ask("MULTI_SET", [(b"/a", b"1"), (b"/b", b"2")]) is None
    assert one.ask("GETNUMKEYS") == 4
    assert sorted(one.ask("LIST_KEYS")) == [b"/a", b"/b", b"/k", b"/n"]
    assert one.ask("DELETE_KEY", b"/a") == 1
    assert one.ask("DELETE_KEY", b"/a") == 0
    assert one.ask("QUEUE_PUSH", b"/q", b"1") is None
    assert one.ask("QUEUE_LEN", b"/q") == 1
    assert one.ask("QUEUE_POP", b"/q") == b"1"
    assert one.ask("QUEUE_POP", b"/q") is None
    assert one.ask("BARRIER", b"/bar", 1) == wire.STOP_WAITING
    assert one.ask("CANCEL_WAIT") == wire.WAIT_CANCELED


def test_requests_may_come_in_any_pieces(call):
    one = call()
    data = wire.request("SET", b"/k", b"value") + wire.request("GET", b"/k")
    for i in range(len(data)):
        one.sock.sendall(data[i : i + 1])
    assert one.hear(wire.BY_NAME["GET"]) == b"value"
    one.sock.sendall(data * 50)
    for _ in range(50):
        assert one.hear(wire.BY_NAME["GET"]) == b"value"


def ask_later(caller, server, name, *arguments):
    """Send a request that is answered later, and be sure that it has been read."""
    before = len(server._waits.report())
    caller.sock.sendall(wire.request(name, *arguments))
    wait_until(lambda: len(server._waits.report()) > before)


@pytest.mark.parametrize(
    "make",
    [
        ("SET", b"/k", b""),
        ("ADD", b"/k", 1),
        ("APPEND", b"/k", b"x"),
        ("COMPARE_SET", b"/k", b"", b"x"),
        ("MULTI_SET", [(b"/k", b"x")]),
        ("QUEUE_PUSH", b"/k", b"x"),
    ],
)
def test_a_wait_ends_when_the_key_is_made(call, server, make):
    one, two = call(), call()
    ask_later(one, server, "WAIT", [b"/k"])
    two.ask(*make)
    assert one.hear(wire.BY_NAME["WAIT"]) == wire.STOP_WAITING


def test_a_wait_is_taken_back(call, server):
    one, two = call(), call()
    ask_later(one, server, "WAIT", [b"/k"])
    assert one.ask("CANCEL_WAIT") == wire.WAIT_CANCELED
    two.ask("SET", b"/k", b"")
    assert one.ask("PING", 1) == 1  # and nothing before it


def test_a_barrier(call, server):
    callers = [call() for _ in range(3)]
    ask_later(callers[0], server, "BARRIER", b"/b", 3)
    ask_later(callers[1], server, "BARRIER", b"/b", 3)
    assert callers[2].ask("BARRIER", b"/b", 3) == wire.STOP_WAITING
    for caller in callers[:2]:
        assert caller.hear(wire.BY_NAME["BARRIER"]) == wire.STOP_WAITING


@pytest.mark.parametrize("how", ["dies", "gives up"])
def test_a_turn_that_is_not_used_goes_on(call, server, how):
    """One value, two that wait: the first is woken and does not take it."""
    one, two, three = call(), call(), call()
    ask_later(one, server, "WAIT", [b"/q"])
    ask_later(two, server, "WAIT", [b"/q"])
    three.ask("QUEUE_PUSH", b"/q", b"v")
    assert one.hear(wire.BY_NAME["WAIT"]) == wire.STOP_WAITING
    assert len(server._waits.report()) == 1
    if how == "dies":
        one.close()
    else:
        assert one.ask("CANCEL_WAIT") == wire.WAIT_CANCELED
    assert two.hear(wire.BY_NAME["WAIT"]) == wire.STOP_WAITING
    assert two.ask("QUEUE_POP", b"/q") == b"v"


def test_a_turn_that_is_used_does_not(call, server):
    one, two, three = call(), call(), call()
    ask_later(one, server, "WAIT", [b"/q"])
    ask_later(two, server, "WAIT", [b"/q"])
    three.ask("QUEUE_PUSH", b"/q", b"1")
    assert one.hear(wire.BY_NAME["WAIT"]) == wire.STOP_WAITING
    assert one.ask("QUEUE_POP", b"/q") == b"1"
    assert one.ask("QUEUE_POP", b"/q") is None
    one.close()
    wait_until(lambda: len(server.names()) == 2)
    assert len(server._waits.report()) == 1


def test_the_death_of_a_client_ends_its_waits(call, server):
    one, two = call(), call()
    ask_later(one, server, "WAIT", [b"/a", b"/b"])
    one.close()
    wait_until(lambda: not server._waits.report())
    two.ask("SET", b"/a", b"")
    assert two.ask("CHECK", [b"/a"]) == wire.READY


def test_who_waits(call, server):
    one, two = call(), call()
    one.ask("SET", wire.INTRODUCTION, json.dumps(me().as_dict()).encode())
    ask_later(one, server, "WAIT", [b"/b", b"/a"])
    assert two.ask("CHECK", [wire.WAITING]) == wire.READY
    [row] = json.loads(two.ask("GET", wire.WAITING))
    assert row["who"] == str(me())
    assert row["keys"] == ["a", "b"]
    assert 0 <= row["seconds"] < 20
    assert two.ask("GETNUMKEYS") == 0


# What a bad client can do: close its own connection


HOSTILE = {
    "HTTP": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "wrong magic number": wire.request("VALIDATE", 1),
    "no magic number": wire.request("PING", 1),
    "magic number twice": HELLO + HELLO,
    "unknown operation": HELLO + bytes([19]),
    "noise": HELLO + bytes([255]) * 100,
    "a string without end": HELLO + b"\x01" + b"\xff" * 8,
    "a list without end": HELLO + b"\x05" + b"\xff" * 8,
    "a counter on a text": HELLO
    + wire.request("SET", b"/text", b"text")
    + wire.request("ADD", b"/text", 1),
    "a counter that overflows": HELLO
    + wire.request("ADD", b"/n", (1 << 63) - 1)
    + wire.request("ADD", b"/n", 1),
    "introduction: no JSON": HELLO + wire.request("SET", wire.INTRODUCTION, b"no JSON"),
    "introduction: no object": HELLO + wire.request("SET", wire.INTRODUCTION, b'["x"]'),
    "introduction: no pid": HELLO + wire.request("SET", wire.INTRODUCTION, b'{"pid": "x"}'),
    "introduction: too deep": HELLO + wire.request("SET", wire.INTRODUCTION, b"[" * 100_000),
}


@pytest.mark.parametrize("said", HOSTILE.values(), ids=HOSTILE)
def test_hostile_bytes(call, server, said, caplog):
    good, bad = call(), call(hello=b"")
    bad.sock.sendall(said)
    assert bad.is_hung_up_on()
    assert good.ask("ADD", b"/counter", 1) == 1
    assert "hangs up on" in caplog.text


@settings(max_examples=150, deadline=None)
@given(st.lists(st.binary(max_size=60), min_size=1, max_size=5))
def test_any_bytes(said):
    """The server lives, whatever comes; the log is not looked at."""
    server, good = _for_fuzzing()
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as bad:
        bad.sendall(HELLO)
        for data in said:
            try:
                bad.sendall(data)
            except OSError:
                break
    assert good.ask("PING", 1) == 1


_fuzzed = []


def _for_fuzzing():
    if not _fuzzed:
        server = Server("127.0.0.1", 0)
        _fuzzed.extend([server, Caller(server)])
    return _fuzzed


@pytest.fixture(scope="module", autouse=True)
def fuzzing():
    yield
    for one in reversed(_fuzzed):
        one.close()


mutated = st.tuples(
    st.sampled_from(wire.OPS[1:]), st.integers(0, 60), st.binary(min_size=1, max_size=4)
)


@settings(max_examples=150, deadline=None)
@given(st.lists(mutated, min_size=1, max_size=5))
def test_damaged_requests(changes):
    server, good = _for_fuzzing()
    samples = {"string": b"/key", "i64": 5, "u32": 5, "strings": [b"/a"], "pairs": [(b"/a", b"1")]}
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as bad:
        bad.sendall(HELLO)
        for op, place, damage in changes:
            data = wire.request(op.name, *(samples[kind] for kind in op.arguments))
            try:
                bad.sendall(data[:place] + damage + data[place + len(damage) :])
            except OSError:
                break
    assert good.ask("PING", 2) == 2


def test_what_is_announced_takes_no_memory(server, call):
    """Many that announce much, and send nothing of it."""
    callers = [call(HELLO + b"\x01" + (1 << 27).to_bytes(8, "little")) for _ in range(20)]
    wait_until(lambda: len(server.names()) == 20)
    assert sum(len(client.reader._kept) for client in server._clients.values()) == 0
    for caller in callers:
        caller.close()


def test_a_client_that_does_not_read(call, server, monkeypatch):
    monkeypatch.setattr("teachdist.stores.tcp_store.answers.KEPT_AT_MOST", 1 << 20)
    good, bad = call(), call()
    bad.ask("SET", b"/k", bytes(1 << 19))
    bad.sock.setblocking(False)
    hung_up = False
    end = time.monotonic() + 60
    while not hung_up and time.monotonic() < end:
        try:
            bad.sock.send(wire.request("GET", b"/k"))
        except BlockingIOError:
            time.sleep(0.001)
        except OSError:
            hung_up = True
    assert hung_up
    assert good.ask("PING", 1) == 1


def test_too_much_in_one_answer(call, monkeypatch):
    monkeypatch.setattr("teachdist.stores.tcp_store.answers.KEPT_AT_MOST", 1000)
    bad = call()
    bad.ask("SET", b"/k", bytes(100))
    bad.sock.sendall(wire.request("MULTI_GET", [b"/k"] * 11))
    assert bad.is_hung_up_on()


def test_a_large_value_to_a_slow_reader(call):
    value = os.urandom(1 << 20) * 16
    one = call()
    one.ask("SET", b"/large", value)
    one.sock.sendall(wire.request("GET", b"/large") + wire.request("PING", 9))
    got = bytearray()
    while len(got) < len(value) + 12:
        got += one.sock.recv(1 << 16)
    assert got[8:-4] == value
    assert got[-4:] == (9).to_bytes(4, "little")


def test_no_file_descriptors_left(call, server, monkeypatch):
    """The server goes on with those that it has, and accepts again when one hangs up."""
    good, other = call(), call()
    assert good.ask("PING", 1) == 1
    assert other.ask("PING", 1) == 1

    class NoneLeft(socket.socket):
        __slots__ = ()

        def accept(self):
            raise OSError(errno.EMFILE, "Too many open files")

    server._listener.__class__ = NoneLeft
    late = call()
    wait_until(lambda: not server._listening)
    assert good.ask("PING", 2) == 2
    server._listener.__class__ = socket.socket
    other.close()
    assert late.ask("PING", 3) == 3


# Beginning and end


def test_close():
    before = open_files(), threading.active_count()
    server = Server("127.0.0.1", 0)
    callers = [Caller(server) for _ in range(5)]
    callers[0].ask("SET", b"/k", b"v")
    server.close()
    server.close()
    for caller in callers:
        assert caller.is_hung_up_on()
        caller.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port))
    assert (open_files(), threading.active_count()) == before


def test_the_port_can_be_used_again_at_once():
    server = Server("127.0.0.1", 0)
    caller = Caller(server)
    caller.ask("PING", 1)
    server.close()
    Server("127.0.0.1", server.port).close()
    caller.close()


def test_wait_for_users(server, call):
    assert server.wait_for_users(1, 0.01) == 0
    one = call()
    one.ask("ADD", wire.USERS, 1)
    assert server.wait_for_users(1, 20) == 1


def test_no_torch_is_needed():
    program = "import sys, teachdist.stores.tcp_store.server; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
