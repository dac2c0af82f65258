"""Listen to what clients and a TCPStore server say to each other, and put it into words.

A sniffer is a proxy: clients connect to it, it connects to the server for each of them and hands
the bytes on, unchanged and at once, in both directions. What passes is also read with the table
of wire.py. It works with torch's clients and server as with ours, and nobody needs to know about
it:

    with stores.sniff() as wire:                      # a server of its own behind it
        store = dist.TCPStore(wire.host, wire.port)   # in each rank, in any process
        dist.init_process_group("gloo", store=store, rank=rank, world_size=size)

prints, among others::

    client 1: default_pg/0//cpu//0/0 is b'...' (144 bytes)     [SET]
    client 2: tell me when all of 'default_pg/0//cpu//0/0' are there     [WAIT]
    client 2 hears: it is there

All ranks must be clients (``is_master=False``): the server is the sniffer's, or one that runs
already, ``sniff("127.0.0.1", 29500)``.
"""

import contextlib
import json
import socket
import threading
import time
from collections import deque
from dataclasses import dataclass

from teachdist.stores.table import shorten
from teachdist.stores.tcp_store import wire
from teachdist.stores.tcp_store.server import Server
from teachdist.stores.who import Process

_CHUNK = 64 << 10


@dataclass(frozen=True)
class Message:
    """One message; ``seconds`` are since the sniffer's start, ``text`` is the message in words."""

    seconds: float
    client: str
    op: str
    is_reply: bool
    text: str
    keys: tuple[str, ...]

    def __str__(self):
        return f"{self.client}{' hears' if self.is_reply else ''}: {self.text}"


class Sniffer:
    """A proxy that says what passes; clients connect to ``host`` and ``port``."""

    def __init__(self, host, port, say):
        self._own = Server("127.0.0.1", 0) if host is None else None
        self._server = (self._own.host, self._own.port) if self._own else (host, port)
        self._say = say
        self._lock = threading.Lock()
        self._start = time.monotonic()
        self._conversations = []
        self.messages = []
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.host, self.port = self._listener.getsockname()
        self._thread = threading.Thread(target=self._accept, name="teachdist-sniff", daemon=True)
        self._thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.close()

    def close(self):
        """Hang up on all clients and stop; ``messages`` stay."""
        with contextlib.suppress(OSError):  # closed before, or a system that shuts no listener
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(timeout=5)
        for conversation in self._conversations:
            conversation.close()
        if self._own:
            self._own.close()

    def note(self, client, op, is_reply, text, keys=()):
        """Keep a message and say it."""
        message = Message(time.monotonic() - self._start, client, op, is_reply, text, tuple(keys))
        with self._lock:
            self.messages.append(message)
            if self._say is not None:
                self._say(str(message))

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._server, timeout=10)
            except OSError as error:
                self.note("sniffer", "", False, f"no server at {self._server}: {error}")
                client.close()
                continue
            number = len(self._conversations) + 1
            self._conversations.append(Conversation(self, f"client {number}", client, server))


class Conversation:
    """One client and its connection to the server: two threads, one per direction."""

    def __init__(self, sniffer, name, client, server):
        self.sniffer, self.name = sniffer, name
        self._sockets = (client, server)
        self._asked = deque()  # requests that have not been answered
        requests = wire.Reader(wire.read_request)
        replies = wire.Reader(self._read_reply)
        self._threads = [
            threading.Thread(target=self._pass, args=way, name=f"sniff {name}", daemon=True)
            for way in (
                (client, server, requests, self._request),
                (server, client, replies, self._reply),
            )
        ]
        for sock in self._sockets:
            sock.settimeout(None)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for thread in self._threads:
            thread.start()

    def close(self):
        """Hang up on both sides."""
        for sock in self._sockets:
            with contextlib.suppress(OSError):  # the other side was faster
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(timeout=5)
        for sock in self._sockets:
            sock.close()

    def _pass(self, source, target, reader, put_into_words):
        """Read, understand, hand on; what is not understood is handed on all the same."""
        while True:
            try:
                data = source.recv(_CHUNK)
            except OSError:
                data = b""
            if reader is not None:
                try:
                    for message in reader.feed(data):
                        put_into_words(*message)
                except wire.WireError as error:
                    self.sniffer.note(self.name, "", False, f"(no TCPStore language: {error})")
                    reader = None
            try:
                if not data:
                    return target.shutdown(socket.SHUT_WR)
                target.sendall(data)
            except OSError:
                return None

    def _request(self, op, arguments):
        if op.reply:
            self._asked.append((op, arguments))
        if op.name == "SET" and arguments[0] == wire.INTRODUCTION:
            text = "I am called otherwise"
            with contextlib.suppress(ValueError, TypeError, AttributeError):
                text = f"I am {Process.from_dict(json.loads(arguments[1]))}"
        elif op.name == "CHECK" and arguments[0] == [wire.WAITING]:
            text = "are you a server of teachdist?"
        else:
            text = op.says.format(*(_word(a) for a in arguments))
        self.sniffer.note(
            self.name, op.name, False, f"{text}     [{op.name}]", _keys(op, arguments)
        )

    def _read_reply(self):
        """Read the answer to the oldest open request."""
        if not self._asked:
            raise wire.WireError("an answer that nobody asked for")
        op, arguments = self._asked.popleft()
        value = yield from wire.read_reply(op, arguments)
        if op.name == "WAIT" and value == wire.WAIT_CANCELED:
            op, arguments = self._asked.popleft()  # the answer to the CANCEL_WAIT that ended it
        return op, arguments, value

    def _reply(self, op, arguments, value):
        text = _ANSWERS.get((op.name, value)) if isinstance(value, int) else None
        self.sniffer.note(self.name, op.name, True, text or _word(value), _keys(op, arguments))


_ANSWERS = {
    ("CHECK", wire.READY): "yes",
    ("CHECK", wire.NOT_READY): "no",
    ("WAIT", wire.STOP_WAITING): "they are there",
    ("BARRIER", wire.STOP_WAITING): "all have come",
    ("CANCEL_WAIT", wire.WAIT_CANCELED): "well, then not",
}


def _word(value):
    if isinstance(value, bytes):
        return shorten(value.removeprefix(b"/"))[1:]
    if isinstance(value, list):
        return ", ".join(
            " is ".join(map(_word, v)) if isinstance(v, tuple) else _word(v) for v in value
        )
    return "nothing" if value is None else str(value)


def _keys(op, arguments):
    """The user's keys that a message is about."""
    if not arguments or op.arguments[0] not in ("string", "strings", "pairs"):
        return []
    first = arguments[0] if isinstance(arguments[0], list) else arguments[:1]
    keys = [key[0] if isinstance(key, tuple) else key for key in first]
    return [wire.plain(key) for key in keys]


def sniff(host=None, port=None, *, say=print):
    """Listen in on a TCPStore server, for a ``with`` statement.

    Args:
        host: host of the server to listen in on; None starts one.
        port: its port.
        say: called with each message in words; None to only keep them in ``wire.messages``.

    Returns:
        A :class:`Sniffer`; clients connect to its ``host`` and ``port``.
    """
    return Sniffer(host, port, say)
