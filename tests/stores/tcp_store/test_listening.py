import socket

import pytest

from teachdist.stores.tcp_store.listening import adopt, ip_network, is_within, listen


def test_one_address():
    with listen("127.0.0.1", 0) as listener:
        host, port = listener.getsockname()
        assert host == "127.0.0.1"
        assert port > 0


def test_all_addresses():
    with listen("", 0) as listener:
        socket.create_connection(("127.0.0.3", listener.getsockname()[1])).close()


def test_adopt():
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    port = bound.getsockname()[1]
    with adopt(bound.detach(), port) as listener:
        socket.create_connection(("127.0.0.1", port)).close()
        assert listener.getsockname()[1] == port


def test_adopt_what_is_bound_elsewhere():
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    with pytest.raises(OSError, match="bound to port"):
        adopt(bound.detach(), 1)


@pytest.mark.parametrize(
    ("address", "inside"),
    [
        ("10.1.2.3", True),
        ("11.1.2.3", False),
        ("::ffff:10.1.2.3", True),
        ("fe80::1%eth0", True),
        ("::1", False),
    ],
)
def test_is_within(address, inside):
    networks = [ip_network("10.0.0.0/8"), ip_network("fe80::/10")]
    assert is_within(address, networks) is inside
