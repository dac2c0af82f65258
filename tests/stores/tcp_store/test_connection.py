"""What a broken exchange does to a connection: the next one works."""

import socket
import threading

import pytest
from torch.distributed import DistNetworkError

from teachdist.stores.tcp_store import wire
from teachdist.stores.tcp_store.connection import Connection
from teachdist.stores.tcp_store.server import Server


@pytest.fixture
def server():
    server = Server("127.0.0.1", 0)
    yield server
    server.close()


@pytest.fixture
def connection(server):
    connection = Connection("127.0.0.1", server.port, 20)
    yield connection
    connection.close()


def test_it_knows_our_server(connection):
    assert connection.server_is_ours


def test_it_introduces_itself(server, connection):
    assert connection.ask("PING", 1) == 1
    assert server.names()[0].startswith("pid ") or server.names()[0].startswith("rank ")


def test_ask(connection):
    assert connection.ask("SET", b"/k", b"v") is None
    assert connection.ask("GET", b"/k") == b"v"
    assert connection.ask("MULTI_GET", []) == []
    assert connection.peek(b"/k", 5) == b"v"
    assert connection.peek(b"/absent", 5) is None


def test_it_connects_again(connection):
    connection.ask("SET", b"/k", b"v")
    connection.ask("CHECK", [b"/k"])  # a SET alone may be lost with its connection
    connection.close()
    assert not connection.is_open
    assert connection.ask("GET", b"/k") == b"v"


def test_lazily(server):
    connection = Connection("127.0.0.1", server.port)
    assert not connection.is_open
    assert connection.ask("PING", 2) == 2
    connection.close()


def test_an_unanswered_request_is_told(server, connection):
    """Its SET was refused: the error comes with a later request."""

    def check_twice():
        connection.ask("CHECK", [b"/k"])
        connection.ask("CHECK", [b"/k"])

    server.max_request = 1000
    connection.close()
    connection.ask("PING", 1)
    connection.ask("SET", b"/some key", bytes(2000))
    with pytest.raises(DistNetworkError, match=r"during CHECK.*store object stays usable"):
        check_twice()
    assert connection.ask("PING", 2) == 2


def test_what_is_no_store_server():
    """It answers, but not what was asked for."""
    listener = socket.create_server(("127.0.0.1", 0))

    def answer():
        for _ in range(100):
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            sock.sendall(b"SSH-2.0-OpenSSH\r\n")
            sock.recv(100)
            sock.close()

    thread = threading.Thread(target=answer)
    thread.start()
    with pytest.raises(DistNetworkError, match="no TCPStore server"):
        Connection("127.0.0.1", listener.getsockname()[1], 0.3)
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(20)


def test_an_interrupted_wait_leaves_a_connection_that_works(server, connection, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(connection, "_answered_within", interrupt)
    with pytest.raises(KeyboardInterrupt):
        connection.wait([b"/k"], 20, "wait")
    connection.ask("SET", b"/k", b"v")
    assert connection.ask("GET", b"/k") == b"v"
    assert server._waits.report() == []


def test_an_answer_that_comes_while_the_wait_is_taken_back(server, connection, monkeypatch):
    """The key appears just when the time is up: the wait was not in vain."""
    other = Connection("127.0.0.1", server.port, 20)

    def too_late(*_):
        other.ask("SET", b"/k", b"v")
        other.ask("CHECK", [b"/k"])
        return False

    monkeypatch.setattr(connection, "_answered_within", too_late)
    connection.wait([b"/k"], 20, "wait")
    assert connection.ask("GET", b"/k") == b"v"
    other.close()


def test_the_table_has_all_that_is_asked():
    assert {"ADD", "BARRIER", "WAIT"} <= set(wire.BY_NAME)


@pytest.mark.parametrize("ask", ["wait", "peek"])
def test_a_server_that_is_stopped_does_not_hold_up_who_asks(ask, monkeypatch):
    """As by SIGSTOP: the connection is there, and no answer comes."""
    monkeypatch.setattr("teachdist.stores.tcp_store.connection.CANCELLED_WITHIN", 0.05)
    server = Server("127.0.0.1", 0)
    connection, other = (Connection("127.0.0.1", server.port, 20) for _ in range(2))
    stopped, go_on = threading.Event(), threading.Event()

    def stop(*_):
        stopped.set()
        go_on.wait(20)

    server.answers._do[wire.BY_NAME["PING"].code] = stop
    other._send("PING", 1)
    assert stopped.wait(20)
    calls = {
        "wait": lambda: connection.wait([b"/never"], 0.05, "wait"),
        "peek": lambda: connection.peek(b"/never", 0.05),
    }
    try:
        with pytest.raises(DistNetworkError, match=r"has not answered for .* is it stopped\?"):
            calls[ask]()
    finally:
        go_on.set()
        for end in (connection, other, server):
            end.close()


@pytest.mark.parametrize("answers", [b"", b"\x00"])
def test_connecting_to_what_says_nothing_has_the_store_s_time(answers):
    """Another program listens there, or a server that stops in the middle of its first answer."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def take():
            with listener.accept()[0] as there:
                there.sendall(answers)
                over.wait(20)

        thread = threading.Thread(target=take)
        thread.start()
        port = listener.getsockname()[1]
        with pytest.raises(DistNetworkError, match=r"timed out after 0\.2 s: something at .* says"):
            Connection("127.0.0.1", port, 0.2)
        over.set()
        thread.join()


def test_nobody_listens():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(DistNetworkError, match=r"no TCPStore server .*, timed out after"):
        Connection("127.0.0.1", port, 0.1)
