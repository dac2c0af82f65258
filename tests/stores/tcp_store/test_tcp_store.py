"""TCPStore: its parameters, on torch's and on ours, and each with the other's server."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import torch.distributed as dist
from ranks import run_ranks
from stores.kinds import LONG, SHORT, TCP, open_files, server_process

from teachdist import stores
from teachdist.stores.tcp_store import connection, wire

both = pytest.mark.parametrize("module", [dist, stores], ids=["torchs", "ours"])


@both
def test_one_server_one_client(module):
    """The documentation's example, on a free port."""
    with ThreadPoolExecutor(1) as pool:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        server = pool.submit(module.TCPStore, "127.0.0.1", port, 2, True, timedelta(seconds=30))
        client = module.TCPStore("127.0.0.1", port, 2, False)
        server = server.result(20)
    server.set("first_key", "first_value")
    assert client.get("first_key") == b"first_value"
    client.set("second_key", "x")
    assert server.get("second_key") == b"x"


@both
def test_all_parameters_by_name(module):
    store = module.TCPStore(
        host_name="127.0.0.1",
        port=0,
        world_size=1,
        is_master=True,
        timeout=LONG,
        wait_for_workers=True,
        multi_tenant=False,
        master_listen_fd=None,
        use_libuv=True,
    )
    store.set("k", "v")
    assert store.get("k") == b"v"


@both
def test_a_client_waits_for_a_server_in_vain(module):
    start = time.monotonic()
    with pytest.raises(dist.DistNetworkError) as caught:
        module.TCPStore("127.0.0.1", free_port(), timeout=timedelta(seconds=1))
    assert 0.9 < time.monotonic() - start < 20
    if module is stores:
        assert "no TCPStore server answers at 127.0.0.1:" in str(caught.value)
        assert "Is rank 0 running" in str(caught.value)


@both
def test_a_client_may_come_before_its_server(module):
    port = free_port()
    with ThreadPoolExecutor(1) as pool:
        client = pool.submit(module.TCPStore, "127.0.0.1", port)
        server = module.TCPStore("127.0.0.1", port, is_master=True)
        server.set("k", "v")
        assert client.result(20).get("k") == b"v"


@both
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_host_name(module, host):
    server = module.TCPStore(host, 0, is_master=True)
    client = module.TCPStore(host, server.port)
    client.set("k", "v")
    assert server.get("k") == b"v"
    assert server.host == client.host == host


@both
def test_port(module):
    server = module.TCPStore("127.0.0.1", 0, is_master=True)
    assert 0 < server.port < 1 << 16
    assert module.TCPStore("127.0.0.1", server.port).port == server.port


@both
def test_world_size_holds_the_server_until_the_client_is_there(module):
    port = free_port()
    done = threading.Event()

    def serve():
        store = module.TCPStore("127.0.0.1", port, 2, True, LONG)
        done.set()
        return store

    with ThreadPoolExecutor(1) as pool:
        server = pool.submit(serve)
        watcher = module.TCPStore("127.0.0.1", port, wait_for_workers=False)  # counts as nobody
        watcher.set("k", "v")
        assert not done.is_set()
        module.TCPStore("127.0.0.1", port, 2, False)
        assert server.result(20).get("k") == b"v"


@both
def test_without_world_size_nobody_is_waited_for(module):
    for size in (None, -1):
        module.TCPStore("127.0.0.1", 0, size, True, SHORT)


@both
def test_wait_for_workers(module):
    start = time.monotonic()
    with pytest.raises(dist.DistStoreError) as caught:
        module.TCPStore("127.0.0.1", 0, 2, True, timedelta(seconds=1))
    assert 0.9 < time.monotonic() - start < 20
    assert "1/2 clients joined" in str(caught.value) or "1 of 2 users" in str(caught.value)
    store = module.TCPStore("127.0.0.1", 0, 2, True, timedelta(seconds=1), wait_for_workers=False)
    store.set("k", "v")


def test_who_has_joined_is_named():
    with pytest.raises(dist.DistStoreError, match=rf"1 are missing.*pid {os.getpid()} on"):
        stores.TCPStore("127.0.0.1", 0, 2, True, SHORT)


@both
def test_two_servers_on_one_port(module):
    server = module.TCPStore("127.0.0.1", 0, is_master=True)
    with pytest.raises(dist.DistNetworkError, match=r"(?i)address (already )?in use") as caught:
        module.TCPStore("127.0.0.1", server.port, is_master=True, timeout=SHORT)
    if module is stores:
        assert "Another server is there" in str(caught.value)


@both
def test_timeout(module):
    assert module.TCPStore("127.0.0.1", 0, is_master=True).timeout == timedelta(seconds=300)
    store = module.TCPStore("127.0.0.1", 0, is_master=True, timeout=SHORT)
    assert store.timeout == SHORT
    with pytest.raises(dist.DistStoreError):
        store.get("absent")


@both
def test_multi_tenant(module):
    one = module.TCPStore("127.0.0.1", 0, is_master=True, multi_tenant=True)
    two = module.TCPStore("127.0.0.1", one.port, is_master=True, multi_tenant=True)
    one.set("k", "v")
    assert two.get("k") == b"v"


def test_the_last_tenant_ends_the_server():
    one = stores.TCPStore("127.0.0.1", 0, is_master=True, multi_tenant=True)
    two = stores.TCPStore("127.0.0.1", one.port, is_master=True, multi_tenant=True)
    one.close()
    two.set("k", "v")
    assert two.get("k") == b"v"
    two.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", two.port))


@both
def test_master_listen_fd(module):
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    fd = listener.detach()  # the store's from now on
    store = module.TCPStore("127.0.0.1", port, is_master=True, master_listen_fd=fd)
    assert store.port == port
    store.set("k", "v")
    assert store.get("k") == b"v"


def test_master_listen_fd_of_another_port():
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    with pytest.raises(dist.DistNetworkError, match="master_listen_fd is bound to port"):
        stores.TCPStore("127.0.0.1", 1, is_master=True, master_listen_fd=listener.detach())


@both
def test_use_libuv(module):
    assert module.TCPStore("127.0.0.1", 0, is_master=True).libuvBackend is True
    without = module.TCPStore("127.0.0.1", 0, is_master=True, use_libuv=False)
    assert without.libuvBackend is False
    without.set("k", "v")
    assert without.get("k") == b"v"


def test_our_client_and_torchs_older_server():
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, use_libuv=False)
    with stores.TCPStore("127.0.0.1", server.port, timeout=SHORT) as client:
        client.set("k", "v")
        assert client.get("k") == b"v"
        with pytest.raises(dist.DistStoreError, match="Nobody has set 'absent'"):
            client.get("absent")
        assert client.add("n", 3) == 3


def test_our_server_listens_on_its_address_only():
    with stores.TCPStore("127.0.0.1", 0, is_master=True) as store:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", store.port))
        assert store._server.host == "127.0.0.1"
    with stores.TCPStore("127.0.0.1", 0, is_master=True, bind="") as store:
        socket.create_connection(("127.0.0.2", store.port)).close()


def test_an_address_of_another_machine():
    with pytest.raises(dist.DistNetworkError, match="not one of this machine"):
        stores.TCPStore("192.0.2.1", 0, is_master=True)


def test_allow():
    with stores.TCPStore("127.0.0.1", 0, is_master=True, allow=["127.0.0.0/30"]) as store:
        store.set("k", "v")
        stranger = socket.create_connection(
            ("127.0.0.1", store.port), source_address=("127.0.0.99", 0)
        )
        with stranger:
            stranger.settimeout(20)
            assert stranger.recv(1) == b""
        assert store.get("k") == b"v"


# A second launch


def test_more_users_than_world_size_are_told(caplog):
    with stores.TCPStore("127.0.0.1", 0, 1, True) as server:
        assert not caplog.records
        with stores.TCPStore("127.0.0.1", server.port, 1):
            pass
    assert "is user 2 of a TCPStore" in caplog.text
    assert "second launch" in caplog.text


# Large values, many clients


@pytest.mark.parametrize("kind", ["our_tcp", "torchs_client_of_our_server"])
def test_a_value_of_64_mib(makers, kind):
    store = getattr(makers, kind)()
    value = os.urandom(1 << 20) * 64
    store.set("large", value)
    assert store.get("large") == value
    store.append("large", b"end")
    assert store.get("large")[-5:] == value[-2:] + b"end"


def test_our_client_sends_64_mib_to_torchs_older_server():
    """Torch's libuv server takes 8 MiB at most."""
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, use_libuv=False)
    value = os.urandom(1 << 20) * 64
    with stores.TCPStore("127.0.0.1", server.port) as client:
        client.set("large", value)
        assert client.get("large") == value


def test_a_value_that_torchs_server_refuses():
    server = dist.TCPStore("127.0.0.1", 0, is_master=True)
    with stores.TCPStore("127.0.0.1", server.port) as client:
        with pytest.raises(dist.DistNetworkError, match=r"values up to 8 MiB only"):
            set_often(client, bytes((8 << 20) + 1))
        client.set("k", "v")
        assert client.get("k") == b"v"


def test_a_value_that_our_server_refuses():
    with stores.TCPStore("127.0.0.1", 0, is_master=True) as store:
        store._server.max_request = 1000
        client = store.clone()
        with pytest.raises(dist.DistNetworkError, match="refuse this request"):
            set_often(client, bytes(1001))
        store.set("k", "v")
        assert client.get("k") == b"v"


def set_often(client, value):
    """A SET has no reply: the error comes with this request or a later one."""
    for _ in range(3):
        client.set("large", value)
        client.check(["large"])


def test_200_clients_at_once():
    with stores.TCPStore("127.0.0.1", 0, 1, True) as server:
        clients = [stores.TCPStore("127.0.0.1", server.port) for _ in range(200)]
        with ThreadPoolExecutor(200) as pool:
            ends = [pool.submit(client.get, "go") for client in clients]
            server.set("go", "!")
            assert {end.result(60) for end in ends} == {b"!"}
            assert sorted(pool.map(lambda c: c.add("n", 1), clients)) == list(range(1, 201))
            list(pool.map(lambda c: c.barrier("all", 200), clients))
        for client in clients:
            client.close()


def test_200_clients_of_torch_at_our_server():
    with server_process() as port:
        clients = [dist.TCPStore("127.0.0.1", port) for _ in range(200)]
        with ThreadPoolExecutor(200) as pool:
            ends = [pool.submit(client.get, "go") for client in clients]
            clients[0].clone().set("go", "!")
            assert {end.result(60) for end in ends} == {b"!"}
            assert sorted(pool.map(lambda c: c.add("n", 1), clients)) == list(range(1, 201))


# Failures


def test_a_server_that_ends_frees_its_clients():
    server = stores.TCPStore("127.0.0.1", 0, is_master=True)
    client = stores.TCPStore("127.0.0.1", server.port)
    with ThreadPoolExecutor(1) as pool:
        end = pool.submit(client.get, "never")
        wait_until(lambda: server._server._waits.report())
        server.close()
        with pytest.raises(dist.DistNetworkError, match="lost the TCPStore server"):
            end.result(20)
    client.close()


@both
def test_network_error_when_the_server_is_gone(module, monkeypatch):
    monkeypatch.setattr(connection, "ANSWER_WITHIN", 0.3)  # ours would wait for another one
    with server_process() as port:
        client = module.TCPStore("127.0.0.1", port)
        client.set("k", "v")
    with pytest.raises(dist.DistNetworkError):
        add_twice(client)


def add_twice(client):
    client.add("n", 1)
    client.add("n", 1)


def test_the_death_of_a_client_frees_its_waits():
    waiter = (
        "import socket, sys; from teachdist.stores.tcp_store import wire;"
        "s = socket.create_connection(('127.0.0.1', int(sys.argv[1])));"
        "s.sendall(wire.request('VALIDATE', wire.MAGIC) + wire.request('WAIT', [b'/never']));"
        "s.recv(1)"
    )
    with stores.TCPStore("127.0.0.1", 0, is_master=True) as store:
        with subprocess.Popen([sys.executable, "-c", waiter, str(store.port)]) as process:
            wait_until(lambda: store._server._waits.report())
            process.send_signal(signal.SIGKILL)
        wait_until(lambda: not store._server._waits.report())
        assert len(store._server.names()) == 1


def test_a_time_out_names_the_others_that_wait():
    with stores.TCPStore("127.0.0.1", 0, is_master=True, timeout=SHORT) as store:
        other = stores.TCPStore("127.0.0.1", store.port)
        with ThreadPoolExecutor(1) as pool:
            end = pool.submit(other.wait, ["other_key"])
            wait_until(lambda: store._server._waits.report())
            with pytest.raises(dist.DistStoreError, match=r"'mine'.*Others .* for other_key \("):
                store.get("mine")
            store.set("other_key", "")
            end.result(20)
        other.close()


def test_a_barrier_in_vain_says_how_many_came():
    with (
        stores.TCPStore("127.0.0.1", 0, is_master=True, timeout=SHORT) as store,
        pytest.raises(dist.DistStoreError, match="1 of 3 have come to 'b'"),
    ):
        store.barrier("b", 3)


def test_a_fork_gets_a_connection_of_its_own():
    def in_a_fork():
        import os

        from teachdist import stores

        store = stores.TCPStore("127.0.0.1", 0, is_master=True)
        child = os.fork()
        if child == 0:
            os._exit(0 if store.add("n", 1) == 1 else 1)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return code, store.add("n", 1)

    assert run_ranks(1, in_a_fork, backend=None) == [(0, 2)]


@pytest.mark.parametrize("kind", TCP)
def test_nothing_is_left_open(kind, makers, exits):
    if kind.startswith("torchs"):
        pytest.skip("about ours")
    before = open_files(), threading.active_count()
    store = getattr(makers, kind)()
    store.clone().set("k", "v")
    with pytest.raises(dist.DistStoreError):
        store.wait(["absent"], SHORT)
    exits.close()
    del store
    if kind != "our_client_of_torchs_server":
        assert (open_files(), threading.active_count()) == before


def test_long_waits_are_told(monkeypatch, caplog):
    monkeypatch.setattr(connection, "SAY_AFTER", 0.1)
    with (
        stores.TCPStore("127.0.0.1", 0, is_master=True, timeout=SHORT) as store,
        pytest.raises(dist.DistStoreError),
    ):
        store.get("bad_key")
    assert "TCPStore.get('bad_key')" in caplog.text
    assert "still waits" in caplog.text


def test_a_thread_that_waits_holds_its_store_object(monkeypatch):
    monkeypatch.setattr(connection, "ANSWER_WITHIN", 0.3)
    with stores.TCPStore("127.0.0.1", 0, is_master=True) as store, ThreadPoolExecutor(1) as pool:
        end = pool.submit(store.get, "k")
        wait_until(lambda: store._server._waits.report())
        with pytest.raises(dist.DistStoreError, match=r"store\.clone\(\)"):
            store.set("k", "v")
        store.clone().set("k", "v")
        assert end.result(20) == b"v"


def test_keys_on_the_wire_have_torchs_prefix():
    server = dist.TCPStore("127.0.0.1", 0, 1, True)
    with stores.TCPStore("127.0.0.1", server.port) as client:
        client.set("k", "v")
        assert server.get("k") == b"v"
        assert client._connection.ask("GET", b"/k") == b"v"
        assert client._connection.ask("GET", wire.USERS) == b"1"


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def wait_until(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.mark.parametrize("port", [-1, 65536, 99999])
def test_a_port_that_is_none(port):
    with pytest.raises(ValueError, match=f"TCPStore: port={port}; ports are 1 to 65535"):
        stores.TCPStore("127.0.0.1", port, is_master=True)


def test_a_timeout_is_a_timedelta():
    with pytest.raises(TypeError, match="TCPStore: timeout must be a timedelta, not 2"):
        stores.TCPStore("127.0.0.1", 0, is_master=True, timeout=2)
    with stores.HashStore() as store, pytest.raises(TypeError, match="HashStore: timeout must be"):
        store.set_timeout(2)


def test_networks_that_are_none():
    with pytest.raises(ValueError, match=r"allow=\('hello',\): 'hello' does not appear"):
        stores.TCPStore("127.0.0.1", 0, is_master=True, allow=("hello",))


@pytest.mark.parametrize("users", [0, -2])
def test_a_number_of_users_that_is_none(users):
    with pytest.raises(ValueError, match=f"TCPStore: world_size={users}; it is"):
        stores.TCPStore("127.0.0.1", 0, users, True)


@pytest.mark.parametrize("module", [dist, stores])
def test_under_torchrun_a_master_uses_the_agent_s_server(module, monkeypatch):
    with stores.TCPStore("127.0.0.1", 0, is_master=True) as agent:
        with pytest.raises(dist.DistNetworkError, match=r"(?i)address already in use"):
            module.TCPStore("127.0.0.1", agent.port, is_master=True)
        monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "1")
        monkeypatch.setenv("MASTER_PORT", str(agent.port))
        master = module.TCPStore("127.0.0.1", agent.port, is_master=True)
        master.set("k", "v")
        assert agent.get("k") == b"v"


@pytest.mark.parametrize("call", ["get", "wait"])
def test_a_time_out_is_called_so(call):
    """Launchers look for these words."""
    with (
        stores.TCPStore("127.0.0.1", 0, is_master=True, timeout=SHORT) as store,
        pytest.raises(dist.DistStoreError, match="timed out after"),
    ):
        store.get("never") if call == "get" else store.wait(["never"])
