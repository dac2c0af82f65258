import os
import socket
import threading
from datetime import timedelta

import pytest
import torch.distributed as dist
from ranks import run_ranks
from stores.kinds import open_files, server_process

from teachdist import stores
from teachdist.stores.tcp_store.sniff import sniff


@pytest.fixture(params=["torchs", "ours"])
def client_class(request):
    return {"torchs": dist.TCPStore, "ours": stores.TCPStore}[request.param]


def texts(wire):
    return [str(message) for message in wire.messages]


def test_a_client_in_words(client_class):
    said = []
    with server_process() as port, sniff("127.0.0.1", port, say=said.append) as wire:
        store = client_class(wire.host, wire.port, timeout=timedelta(seconds=0.3))
        store.set("first_key", "first_value")
        assert store.get("first_key") == b"first_value"
        assert store.add("n", 5) == 5
        with pytest.raises(dist.DistStoreError):
            store.wait(["bad_key"])
        store.multi_set(["a", "b"], ["1", "2"])
        assert store.check(["a"])
        assert store.queue_pop.__self__ is store
        with pytest.raises(dist.QueueEmptyError):
            store.queue_pop("q", False)
        del store
    assert said == texts(wire)
    for line in (
        "client 1: I speak TCPStore     [VALIDATE]",
        "client 1: 'first_key' is 'first_value'     [SET]",
        "client 1: what is 'first_key'?     [GET]",
        "client 1 hears: 'first_value'",
        "client 1: count 5 on to 'n'     [ADD]",
        "client 1 hears: 5",
        "client 1: tell me when all of 'bad_key' are there     [WAIT]",
        "client 1: I wait no longer     [CANCEL_WAIT]",
        "client 1 hears: well, then not",
        "client 1: 'a' is '1', 'b' is '2'     [MULTI_SET]",
        "client 1 hears: nothing",
    ):
        assert line in said, line
    assert said.index("client 1 hears: 5") > said.index("client 1: count 5 on to 'n'     [ADD]")


def test_messages_have_keys():
    with sniff(say=None) as wire:
        with stores.TCPStore(wire.host, wire.port) as store:
            store.multi_set(["a", "b"], ["1", "2"])
            store.get("a")
        by_op = {message.op: message for message in wire.messages if not message.is_reply}
        assert by_op["MULTI_SET"].keys == ("a", "b")
        assert by_op["GET"].keys == ("a",)
        assert by_op["PING"].keys == ()


@pytest.mark.parametrize("server", [dist.TCPStore, stores.TCPStore])
def test_our_client_and_either_server(server):
    server = server("127.0.0.1", 0, is_master=True)
    with (
        sniff("127.0.0.1", server.port, say=None) as wire,
        stores.TCPStore(wire.host, wire.port) as store,
    ):
        store.set("k", bytes(range(256)) * 1000)
        assert store.get("k") == bytes(range(256)) * 1000
        assert any("(256000 bytes)" in text for text in texts(wire))


def test_what_ranks_say_before_the_first_collective():
    def init(host, port):
        import torch

        rank = int(os.environ["RANK"])
        store = dist.TCPStore(host, port)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
        dist.all_reduce(torch.ones(1))
        dist.destroy_process_group()

    with sniff(say=None) as wire:
        run_ranks(2, init, wire.host, wire.port, backend=None)
    sets = [m for m in wire.messages if m.op == "SET" and "gloo" not in m.text]
    assert {m.client for m in sets} == {"client 1", "client 2"}
    addresses = {key for m in sets for key in m.keys}
    assert len(addresses) >= 2
    asked = {key for m in wire.messages if m.op == "GET" for key in m.keys}
    assert addresses <= asked


def test_what_it_does_not_understand_is_handed_on():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with sniff(*listener.getsockname(), say=None) as wire:
            client = socket.create_connection((wire.host, wire.port), timeout=20)
            client.sendall(b"\xffsomething else")
            server, _ = listener.accept()
            with client, server:
                server.settimeout(20)
                assert server.recv(100) == b"\xffsomething else"
                server.sendall(b"as well")
                assert client.recv(100) == b"as well"
        assert any("no TCPStore language" in text for text in texts(wire))


def test_no_server_behind_it():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with sniff("127.0.0.1", port, say=None) as wire:
        with socket.create_connection((wire.host, wire.port), timeout=20) as client:
            assert client.recv(1) == b""
        assert "no server at" in wire.messages[0].text


def test_nothing_is_left():
    before = open_files(), threading.active_count()
    with sniff(say=None) as wire, stores.TCPStore(wire.host, wire.port) as store:
        store.set("k", "v")
        assert store.get("k") == b"v"
    wire.close()
    assert (open_files(), threading.active_count()) == before
