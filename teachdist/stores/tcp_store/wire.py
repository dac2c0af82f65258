"""What TCPStore clients and servers say to each other, byte by byte.

torch's C++ ``TCPStore`` speaks a small language that is documented nowhere but in its source. It is
written down here once, as a table, and everything else is derived from it: the client encodes with
it, the server decodes with it, the sniffer puts it into words. So what you read is what is sent.

Four rules explain all messages:

- integers are little-endian, of fixed width;
- a *string* (key or value) is its length as u64, then its bytes; a *list* is its count as u64, then
  its items;
- a request is one byte, the operation, then its arguments. There is no length in front of it: only
  who knows the operation knows where it ends;
- a reply is the bare result. It does not say which request it answers, so the order must: one
  connection has one question open at a time. There is no error reply either: a server that cannot
  serve a request can only close the connection.

The client asks, the server answers, with one exception: WAIT is answered when all its keys exist,
however late that is. The time-out belongs to the client, which takes a WAIT back by CANCEL_WAIT.

torch puts "/" before each key, so that its own bookkeeping key ``init/`` (how many users have
connected) cannot meet a user's. We use that room too: see INTRODUCTION and WAITING.

Source: torch/csrc/distributed/c10d/TCPStoreBackend.hpp and the traffic of torch 2.14.
"""

import struct
from dataclasses import dataclass
from functools import cached_property

MAGIC = 0x3C85F7CE
USERS = b"init/"  # counter: every TCPStore with a world_size adds one when it has connected

# Two keys that our server understands and torch's does not have. As they start without "/", no
# user's key can be one of them; a client finds out by CHECK, which any server answers.
INTRODUCTION = b"?me"  # SET by a client: how it wants to be called in reports
WAITING = b"?waiting"  # GET: who waits for which keys, as JSON


@dataclass(frozen=True)
class Op:
    """One row of the table: an operation, the kinds of its arguments and of its reply."""

    code: int
    name: str
    arguments: tuple[str, ...]
    reply: str | None
    says: str  # for people; {0}, {1}, ... are the arguments

    @cached_property
    def byte(self):
        """The code, as it goes over the wire."""
        return bytes([self.code])


# Kinds: u8, u32, i64; "string"; "strings" (a list); "pairs" (a list of key, value);
# "string each" (a string for every key asked for); "string?" (u64 0, or u64 1 and a string).
OPS = (
    Op(0, "VALIDATE", ("u32",), None, "I speak TCPStore"),
    Op(1, "SET", ("string", "string"), None, "{0} is {1}"),
    Op(2, "COMPARE_SET", ("string", "string", "string"), "string", "if {0} is {1}, make it {2}"),
    Op(3, "GET", ("string",), "string", "what is {0}?"),
    Op(4, "ADD", ("string", "i64"), "i64", "count {1} on to {0}"),
    Op(5, "CHECK", ("strings",), "u8", "are all of {0} there?"),
    Op(6, "WAIT", ("strings",), "u8", "tell me when all of {0} are there"),
    Op(7, "GETNUMKEYS", (), "i64", "how many keys are there?"),
    Op(8, "DELETE_KEY", ("string",), "i64", "delete {0}"),
    Op(9, "APPEND", ("string", "string"), None, "put {1} at the end of {0}"),
    Op(10, "MULTI_GET", ("strings",), "string each", "what are {0}?"),
    Op(11, "MULTI_SET", ("pairs",), None, "{0}"),
    Op(12, "CANCEL_WAIT", (), "u8", "I wait no longer"),
    Op(13, "PING", ("u32",), "u32", "are you there? ({0})"),
    Op(14, "QUEUE_PUSH", ("string", "string"), None, "queue {1} at {0}"),
    Op(15, "QUEUE_POP", ("string",), "string?", "the next one of queue {0}, please"),
    Op(16, "QUEUE_LEN", ("string",), "i64", "how long is queue {0}?"),
    Op(17, "LIST_KEYS", (), "strings", "which keys are there?"),
    Op(18, "BARRIER", ("string", "i64"), "u8", "tell me when {1} have come to {0}"),
)
BY_CODE = {op.code: op for op in OPS}
BY_NAME = {op.name: op for op in OPS}

# The u8 replies. Of CHECK, and of WAIT, CANCEL_WAIT and BARRIER.
READY, NOT_READY = 0, 1
STOP_WAITING, WAIT_CANCELED = 0, 1

# A request may not make the reader hold more than this. torch's libuv server takes values up to
# 8 MiB and keys up to 8 KiB; its older server has no limit.
MAX_REQUEST = 256 << 20
MAX_KEYS = 128 << 10
TORCH_MAX_VALUE = 8 << 20

_NUMBERS = {
    kind: struct.Struct(f)
    for kind, f in {"u8": "<B", "u32": "<I", "i64": "<q", "u64": "<Q"}.items()
}
_U64, _I64 = _NUMBERS["u64"], _NUMBERS["i64"]
_ONE = _U64.pack(1)


def plain(key):
    """A key as its user wrote it: without the "/" that goes in front of it on the wire."""
    return key.decode(errors="backslashreplace").removeprefix("/")


class WireError(Exception):
    """The bytes are not TCPStore's language, or ask for more than the limits allow."""


def request(name, *arguments):
    """The bytes of one request: ``request("ADD", b"/n", 1)``."""
    op = BY_NAME[name]
    parts = [op.byte]
    for kind, value in zip(op.arguments, arguments, strict=True):
        if kind == "string":
            parts += (_U64.pack(len(value)), value)
        elif kind == "i64":
            parts.append(_I64.pack(value))
        else:
            encode(kind, value, parts)
    return b"".join(parts)


def encode(kind, value, parts):
    """Append the bytes of ``value``, written as ``kind``, to the list ``parts``."""
    if kind in _NUMBERS:
        parts.append(_NUMBERS[kind].pack(value))
    elif kind == "string":
        parts += (_U64.pack(len(value)), value)
    elif kind == "string?":
        parts.append(_U64.pack(value is not None))
        if value is not None:
            encode("string", value, parts)
    elif kind == "string each":
        for item in value:
            encode("string", item, parts)
    else:
        parts.append(_U64.pack(len(value)))
        for item in value:
            for string in item if kind == "pairs" else (item,):
                encode("string", string, parts)


def reply(kind, value):
    """The bytes of a reply of this kind."""
    if kind in _NUMBERS:
        return _NUMBERS[kind].pack(value)
    parts = []
    encode(kind, value, parts)
    return b"".join(parts)


# Reading. Each reader is a generator that yields how many bytes it needs next and is sent them: it
# reads like blocking code, yet a server with 200 half-received requests can hold 200 of them.


def read_request():
    """Read one request; the result is ``(op, arguments)``."""
    code = (yield 1)[0]
    op = BY_CODE.get(code)
    if op is None:
        raise WireError(f"there is no operation {code}")
    arguments = []
    for kind in op.arguments:
        if kind == "string":  # as `read` would, without a generator more: this is the common case
            arguments.append((yield _U64.unpack((yield 8))[0]))
        else:
            arguments.append((yield from read(kind)))
    return op, arguments


def read_reply(op, arguments):
    """Read the reply to a request."""
    count = len(arguments[0]) if op.reply == "string each" else None
    return (yield from read(op.reply, count))


def read(kind, count=None):
    """Read one value of this kind; "string each" is as long as the ``count`` of keys asked for."""
    if kind == "string":
        (size,) = _U64.unpack((yield 8))
        return (yield size)
    if kind in _NUMBERS:
        number = _NUMBERS[kind]
        return number.unpack((yield number.size))[0]
    if count is None:
        (count,) = _U64.unpack((yield 8))
    if kind == "string?":
        return (yield from read("string")) if count else None
    if count > MAX_KEYS:
        raise WireError(f"a list of {count} items; at most {MAX_KEYS} are taken")
    items = []
    for _ in range(count):
        first = yield from read("string")
        items.append((first, (yield from read("string"))) if kind == "pairs" else first)
    return items


def request_at_once(data, at):
    """The request that begins at this place, if all of it is there: ``(op, arguments), end``.

    Small requests arrive whole. To read them without stopping takes a third of the time that the
    generator takes; None sends the caller there.
    """
    op = BY_CODE.get(data[at])
    if op is None:
        return None
    arguments, at = [], at + 1
    try:
        for kind in op.arguments:
            if kind == "string":
                start = at + 8
                at = start + _U64.unpack_from(data, at)[0]
                arguments.append(bytes(data[start:at]))
            elif kind == "i64":
                arguments.append(_I64.unpack_from(data, at)[0])
                at += 8
            elif kind == "strings" and data[at : at + 8] == _ONE:
                start = at + 16
                at = start + _U64.unpack_from(data, at + 8)[0]
                arguments.append([bytes(data[start:at])])
            else:
                return None
    except (struct.error, OverflowError):  # not all of it is there, or it says so of 2**63 bytes
        return None
    return ((op, arguments), at) if at <= len(data) else None


class Reader:
    """Cuts a stream of bytes into messages.

    ``start`` makes the generator that reads the next message, when its first byte is there.
    Memory is bounded: a message that announces more than ``limit`` bytes is refused before they
    come, and room grows with what has arrived, never with what was announced. ``at_once`` may
    read a message that is all there in a quicker way.
    """

    def __init__(self, start, limit=MAX_REQUEST, at_once=None):
        self.start = start
        self.at_once = at_once
        self.limit = limit
        self._kept = bytearray()  # the beginning of the next piece
        self._reading = None

    def feed(self, data):
        """Take bytes as they arrived; the messages that they complete, one after the other."""
        if self.at_once is None or self._reading is not None:
            return self._in_pieces(data)
        found = self.at_once(data, 0)
        if found and found[1] == len(data) <= self.limit:  # just one, as nearly always
            return (found[0],)
        return self._several(data, found)

    def _several(self, data, found):
        position = 0
        while found:
            message, end = found
            self._check(end - position)
            yield message
            position = end
            found = self.at_once(data, position) if position < len(data) else None
        if position < len(data):
            yield from self._in_pieces(data[position:] if position else data)

    def _in_pieces(self, data):
        if self._kept:
            self._kept += data
            data = self._kept
        position = 0
        while True:
            if self._reading is None:
                if position == len(data):
                    break
                self._reading = self.start()
                self._need = self._taken = next(self._reading)
            end = position + self._need
            if end > len(data):
                break
            piece = bytes(data[position:end])
            position = end
            try:
                self._need = self._reading.send(piece)
            except StopIteration as done:
                self._reading = None
                yield done.value
            else:
                self._taken += self._need
                self._check(self._taken)
        if data is self._kept:
            del data[:position]
        else:
            self._kept = bytearray(data[position:])

    def _check(self, size):
        if size > self.limit:
            raise WireError(f"a message of more than {self.limit} bytes")
