import pytest
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from teachdist.stores.tcp_store import wire

strings = st.binary(max_size=40)
VALUES = {
    "u8": st.integers(0, 255),
    "u32": st.integers(0, (1 << 32) - 1),
    "i64": st.integers(-(1 << 63), (1 << 63) - 1),
    "string": strings,
    "strings": st.lists(strings, max_size=5),
    "pairs": st.lists(st.tuples(strings, strings), max_size=5),
    "string each": st.lists(strings, max_size=5),
    "string?": st.none() | strings,
}
requests = st.sampled_from(wire.OPS).flatmap(
    lambda op: st.tuples(st.just(op), *(VALUES[kind] for kind in op.arguments))
)


def pieces(data, sizes):
    """The data cut into pieces of these sizes, over and over."""
    while data:
        for size in sizes:
            yield data[:size]
            data = data[size:]


def test_the_table_is_whole():
    assert [op.code for op in wire.OPS] == list(range(19))
    assert len(wire.BY_NAME) == 19


@given(st.lists(requests, max_size=6), st.lists(st.integers(1, 30), min_size=1, max_size=5))
def test_requests_come_back_however_they_are_cut(asked, sizes):
    data = b"".join(wire.request(op.name, *arguments) for op, *arguments in asked)
    reader = wire.Reader(wire.read_request)
    read = [message for piece in pieces(data, sizes) for message in reader.feed(piece)]
    assert read == [(op, list(arguments)) for op, *arguments in asked]


@given(st.sampled_from([op for op in wire.OPS if op.reply]), st.data())
def test_replies_come_back(op, data):
    value = data.draw(VALUES[op.reply])
    asked = [value] if op.reply == "string each" else []
    reader = wire.Reader(lambda: wire.read_reply(op, asked))
    encoded = wire.reply(op.reply, value)
    if encoded:
        assert list(reader.feed(encoded)) == [value]


def test_the_bytes_of_an_add():
    assert wire.request("ADD", b"/n", -1) == b"\x04\2\0\0\0\0\0\0\0/n" + b"\xff" * 8


def test_an_unknown_operation():
    with pytest.raises(wire.WireError, match="no operation 99"):
        list(wire.Reader(wire.read_request).feed(bytes([99])))


def test_what_is_announced_is_not_waited_for_when_it_is_too_much():
    reader = wire.Reader(wire.read_request, limit=1000)
    assert list(reader.feed(b"\x01" + (980).to_bytes(8, "little"))) == []
    with pytest.raises(wire.WireError, match="more than 1000 bytes"):
        list(reader.feed(bytes(980) + (20).to_bytes(8, "little")))


def test_a_list_that_is_too_long():
    with pytest.raises(wire.WireError, match="at most"):
        list(wire.Reader(wire.read_request).feed(b"\x05" + (1 << 40).to_bytes(8, "little")))


def test_the_limit_is_per_request():
    reader = wire.Reader(wire.read_request, limit=100)
    for _ in range(10):
        assert len(list(reader.feed(wire.request("SET", b"k", bytes(50))))) == 1


def test_a_request_of_the_wrong_shape():
    with pytest.raises(ValueError, match="shorter"):
        wire.request("SET", b"k")


def test_an_imitated_client_of_torchs_server():
    """Bytes from the table, by hand, to torch's server."""
    import socket

    server = dist.TCPStore("127.0.0.1", 0, is_master=True)
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as sock:
        sock.sendall(wire.request("VALIDATE", wire.MAGIC) + wire.request("PING", 7))
        assert sock.recv(4) == (7).to_bytes(4, "little")
        sock.sendall(wire.request("SET", b"/k", b"v") + wire.request("GET", b"/k"))
        assert sock.recv(9, socket.MSG_WAITALL) == wire.reply("string", b"v")
    assert server.get("k") == b"v"


def test_plain():
    assert wire.plain(b"/k/1") == "k/1"
    assert wire.plain(b"\xff") == "\\xff"
