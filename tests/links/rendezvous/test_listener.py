"""Strangers at the door: none gets in without the secret, and none holds up those who have it."""

import contextlib
import random
import socket
import time

import pytest
import torch
import torch.distributed as dist
from scenes import play

from teachdist.links.errors import LinkError
from teachdist.links.rendezvous import listener as module
from teachdist.links.rendezvous.listener import HELLO, P2P, Listener, dial

SECRET = bytes(range(16))


@pytest.fixture
def door():
    door = Listener("127.0.0.1")
    door.calls, taken = [], []

    def receive(generation, purpose, rank, sock, offer):
        door.calls.append((generation, purpose, rank, offer))
        taken.append(sock)
        sock.sendall(b"welcome")
        return True

    door.expect(SECRET, receive)
    yield door
    door.close()
    for sock in taken:
        sock.close()


def knock(door):
    return socket.create_connection(door.address, timeout=5)


def is_hung_up(sock):
    try:
        return sock.recv(100) == b""
    except ConnectionError:
        return True


def welcome(door, rank=1):
    sock = dial(door.address, SECRET, 0, P2P, rank, 5.0)
    sock.settimeout(5)
    assert sock.recv(7) == b"welcome"
    sock.close()


def test_a_caller_with_the_secret_is_put_through(door):
    welcome(door, 3)
    assert door.calls == [(0, P2P, 3, None)]


def test_it_listens_on_the_loopback_alone(door):
    assert door.address[0] == "127.0.0.1"


@pytest.mark.parametrize(
    "hello",
    [
        HELLO.pack(b"tdHI", bytes(16), 0, P2P, 1, 0, -1),
        HELLO.pack(b"HTTP", SECRET, 0, P2P, 1, 0, -1),
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" + bytes(40),
        bytes(1000),
    ],
    ids=["wrong secret", "wrong magic", "a browser", "zeros"],
)
def test_a_stranger_is_hung_up_on(door, hello):
    with knock(door) as sock:
        sock.sendall(hello)
        assert is_hung_up(sock)
    assert door.calls == []
    welcome(door)


def test_random_bytes(door):
    chance = random.Random(0)
    for _ in range(200):
        with knock(door) as sock, contextlib.suppress(OSError):
            sock.sendall(chance.randbytes(chance.randrange(1, 200)))
            if chance.random() < 0.5:
                sock.shutdown(socket.SHUT_WR)
    welcome(door)
    assert len(door.calls) == 1


def test_a_hello_in_single_bytes_is_understood(door):
    with knock(door) as sock:
        for byte in HELLO.pack(b"tdHI", SECRET, 7, P2P, 2, 0, -1):
            sock.sendall(bytes([byte]))
        assert sock.recv(7) == b"welcome"
    assert door.calls == [(7, P2P, 2, None)]


def test_who_says_nothing_is_dropped_and_holds_up_nobody(door, monkeypatch):
    monkeypatch.setattr(module, "PATIENCE", 0.2)
    silent = [knock(door) for _ in range(20)]
    silent[0].sendall(b"td")
    began = time.monotonic()
    welcome(door)
    assert time.monotonic() - began < 1.0
    assert all(is_hung_up(sock) for sock in silent)
    for sock in silent:
        sock.close()


def test_only_so_many_may_wait(door, monkeypatch):
    monkeypatch.setattr(module, "MAX_WAITING", 5)
    crowd = [knock(door) for _ in range(12)]
    assert is_hung_up(crowd[0])
    welcome(door)
    for sock in crowd:
        sock.close()


def test_a_secret_is_forgotten(door):
    door.forget(SECRET)
    with dial(door.address, SECRET, 0, P2P, 1, 5.0) as sock:
        sock.settimeout(5)
        assert is_hung_up(sock)


def test_nobody_answers_at_a_closed_door():
    door = Listener("127.0.0.1")
    door.close()
    with pytest.raises(LinkError, match="no connection"):
        dial(door.address, SECRET, 0, P2P, 1, 1.0)


def pestered(rank):
    """The group works on while strangers shout at its doors."""
    from teachdist.backend import communicators

    (communicator,) = communicators()
    chance = random.Random(rank)
    address = communicator.peers.known(rank).address
    callers = []
    for turn in range(60):
        sock = socket.create_connection(address)
        sock.sendall(chance.randbytes(chance.randrange(0, 80)))
        callers.append(sock)
        x = torch.full((1000,), rank + 1.0)
        dist.all_reduce(x)
        assert x.eq(3).all()
        peer = 1 - rank
        sent = dist.isend(x, peer, tag=turn)
        dist.recv(x, peer, tag=turn)
        sent.wait()
        if len(callers) > 20:
            callers.pop(0).close()
    for sock in callers:
        sock.close()


@pytest.mark.parametrize("hosts", [None, ("here", "there")])
def test_a_group_works_on_among_strangers(hosts):
    assert [o.error for o in play(pestered, n=2, hosts=hosts)] == [None, None]
