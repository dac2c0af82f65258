"""The server of a TCPStore: one thread, one loop, one table.

Why one loop instead of a thread per client. A client may wait for keys for minutes, and meanwhile
it may hang up, or take its wait back. A thread that serves one client would have to sleep on
both, its socket and the table. The loop sleeps on all sockets at once, needs no lock, and what a
request does is done before the next one is looked at: "add" is atomic because nothing else runs.

How a request gets in: bytes arrive in pieces of any size and go into the client's ``Reader``, which
gives back whole requests. How an answer gets out: it is sent at once; what the socket does not take
is kept and sent when there is room.

What a bad client can do: close its own connection. Bytes that are no TCPStore language, sizes
beyond the limits, a counter on a text: the format has no error reply, so we hang up on that
client, say why in the log, and the others notice nothing. A client that does not read its answers
is hung up on once too much of them is kept for it. It holds no more memory than one request and
these answers.

Who may come in: whoever can reach the port, as with torch's server, for the language has no
password. Ours listens on the address that it was given and not on all of them (torch's does), and
``allow`` can name the networks from which it accepts connections.

The thread shares the interpreter with rank 0's own Python code. If that is too slow for you, run
``python -m teachdist.stores --port 29500``: the same in a process of its own (no torch in it).
"""

import errno
import json
import logging
import os
import selectors
import socket
import threading
import weakref

from teachdist.stores import wire
from teachdist.stores.listening import adopt, ip_network, is_within, listen
from teachdist.stores.table import NotACounterError, Table
from teachdist.stores.waits import Waits
from teachdist.stores.who import Process

log = logging.getLogger(__name__)

_CHUNK = 64 << 10
_LATER = object()  # the result of a WAIT that is not over
_KEPT_AT_MOST = 2 * wire.MAX_REQUEST


class Client:
    """What the server knows about one connection."""

    def __init__(self, sock, address, max_request):
        self.sock = sock
        self.name = f"{address[0]}:{address[1]}"
        self.reader = wire.Reader(wire.read_request, max_request, wire.request_at_once)
        self.answers = bytearray()  # what the socket did not take yet
        self.is_open = True
        self.validated = False


class Server:
    """Serve a key-value table to TCPStore clients, torch's and ours.

    Args:
        host: name or address to listen on; "" for all addresses.
        port: 0 picks a free one, to be read from ``.port``.
        listen_fd: a bound socket's file descriptor to listen on instead; it is ours from then on.
        allow: networks ("10.0.0.0/8") from which connections are accepted; empty for any.
        max_request: bytes that one request may hold.

    Raises:
        OSError: the address is in use, or not one of this machine.
    """

    def __init__(self, host, port, *, listen_fd=None, allow=(), max_request=wire.MAX_REQUEST):
        self.table = Table()
        self.max_request = max_request
        self._allow = [ip_network(network) for network in allow]
        self._clients = set()
        self._waits = Waits()
        self._do = {op.code: getattr(self, f"_do_{op.name.lower()}") for op in wire.OPS}
        self._users = threading.Condition()  # notified when the counter of users grows
        self._listener = listen(host, port) if listen_fd is None else adopt(listen_fd, port)
        self.host, self.port = self._listener.getsockname()[:2]
        self._stop, self._stopped = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._stopped, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve, name="teachdist-store", daemon=True)
        self._thread.start()
        _servers.add(self)

    def close(self):
        """Hang up on everybody and free the port; may be called twice."""
        if self._thread is None:
            return
        self._stop.close()
        self._thread.join(timeout=5)
        self._thread = None

    def wait_for_users(self, count, seconds):
        """Wait until so many users have connected; the answer is how many have."""
        with self._users:
            self._users.wait_for(lambda: self._count_users() >= count, seconds)
            return self._count_users()

    def names(self):
        """The connected clients, as they called themselves."""
        return [client.name for client in list(self._clients)]

    def _count_users(self):
        return int(self.table.get(wire.USERS) or 0)

    # The loop

    def _serve(self):
        while True:
            for key, events in self._selector.select():
                if key.data is None:
                    if key.fileobj is self._stopped:
                        self._shut()
                        return
                    self._accept()
                elif key.data.is_open:
                    if events & selectors.EVENT_WRITE:
                        self._flush(key.data)
                    if events & selectors.EVENT_READ:
                        self._receive(key.data)

    def _accept(self):
        try:
            sock, address = self._listener.accept()
        except OSError as error:  # it hung up before we came, or we are out of file descriptors
            log.warning("store server on port %d cannot accept a client: %s", self.port, error)
            if error.errno in (errno.EMFILE, errno.ENFILE):
                self._selector.unregister(self._listener)  # until somebody hangs up
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client = Client(sock, address, self.max_request)
        self._clients.add(client)
        self._selector.register(sock, selectors.EVENT_READ, client)
        if self._allow and not is_within(address[0], self._allow):
            self._hang_up(client, "its address is not among those allowed")

    def _receive(self, client):
        try:
            data = client.sock.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._hang_up(client)
            return
        try:
            for op, arguments in client.reader.feed(data):
                self._answer(client, op, arguments)
                if not client.is_open:
                    return
        except (wire.WireError, NotACounterError) as error:
            self._hang_up(client, f"it sent what cannot be served: {error}")
        except Exception:  # the loop goes on for the others, whatever one client sent
            log.exception("store server on port %d", self.port)
            self._hang_up(client, "its request failed here")

    def _send(self, client, data):
        if client.answers:
            client.answers += data
            if len(client.answers) > _KEPT_AT_MOST:
                self._hang_up(client, "it does not read its answers")
            return
        try:
            sent = client.sock.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._hang_up(client)
            return
        if sent < len(data):
            client.answers = bytearray(data)  # of which a beginning is cheaply dropped
            del client.answers[:sent]
            self._selector.modify(client.sock, selectors.EVENT_READ | selectors.EVENT_WRITE, client)

    def _flush(self, client):
        """The socket takes more of what is kept."""
        try:
            del client.answers[: client.sock.send(client.answers)]
        except OSError:
            self._hang_up(client)
            return
        if not client.answers:
            self._selector.modify(client.sock, selectors.EVENT_READ, client)

    def _hang_up(self, client, why=None):
        """Forget a client: its socket, its waits, and the turn it had at a queue."""
        if not client.is_open:
            return
        client.is_open = False
        self._clients.discard(client)
        if why:
            log.warning("store server on port %d hangs up on %s: %s", self.port, client.name, why)
        self._selector.unregister(client.sock)
        client.sock.close()
        if self._listener not in self._selector.get_map():
            self._selector.register(self._listener, selectors.EVENT_READ)
        self._waits.close(client)
        self._pass_on(client)

    def _shut(self):
        for sock in (*(c.sock for c in self._clients), self._listener, self._stopped):
            sock.close()
        self._clients.clear()
        self._selector.close()

    # Who is done waiting gets its answer, now or when somebody makes the last key that it misses.

    def _made(self, key):
        """The key exists now: whoever misses nothing any more is done."""
        if key in self._waits.keys:
            self._release(self._waits.appeared(key))

    def _release(self, clients):
        for client in clients:
            self._send(client, bytes([wire.STOP_WAITING]))

    def _pass_on(self, client):
        """A client that was woken for a queue, and does not pop, leaves its turn to the next."""
        key = self._waits.take_turn(client)
        if key in self.table.queues:
            self._release(self._waits.pushed(key))

    # The requests, one method each: what `_answer` finds under the operation's name

    def _answer(self, client, op, arguments):
        if not client.validated:
            if op.name != "VALIDATE" or arguments != [wire.MAGIC]:
                raise wire.WireError("it does not begin with TCPStore's magic number")
            client.validated = True
            return
        if self._waits.has_turn(client) and op.name != "QUEUE_POP":
            self._pass_on(client)
        result = self._do[op.code](client, *arguments)
        if op.reply and result is not _LATER:
            self._send(client, wire.reply(op.reply, result))

    def _do_validate(self, client, magic):
        raise wire.WireError("it introduces itself twice")

    def _do_ping(self, client, nonce):
        return nonce

    def _do_set(self, client, key, value):
        if key == wire.INTRODUCTION:
            client.name = str(Process.from_dict(json.loads(value[:1000])))
            return
        self.table.set(key, value)
        self._made(key)

    def _do_multi_set(self, client, pairs):
        for key, value in pairs:
            self._do_set(client, key, value)

    def _do_append(self, client, key, value):
        self.table.append(key, value)
        self._made(key)

    def _do_compare_set(self, client, key, expected, desired):
        value = self.table.compare_set(key, expected, desired)
        if self.table.has(key):
            self._made(key)
        return value

    def _do_add(self, client, key, amount):
        count = self.table.add(key, amount)
        self._made(key)
        if key == wire.USERS:
            with self._users:
                self._users.notify_all()
        return count

    def _do_get(self, client, key):
        if key == wire.WAITING:
            return self._report()
        return self.table.get(key) or b""

    def _do_multi_get(self, client, keys):
        if sum(len(self.table.get(key) or b"") for key in keys) > _KEPT_AT_MOST:
            raise wire.WireError("MULTI_GET of more than can be kept for one client")
        return [self._do_get(client, key) for key in keys]

    def _do_check(self, client, keys):
        there = all(key == wire.WAITING or self.table.has(key) for key in keys)
        return wire.READY if there else wire.NOT_READY

    def _do_wait(self, client, keys):
        missing = [key for key in keys if not self.table.has(key)]
        if not missing:
            return wire.STOP_WAITING
        self._waits.open(client, missing)
        return _LATER

    def _do_cancel_wait(self, client):
        self._waits.close(client)
        return wire.WAIT_CANCELED

    def _do_getnumkeys(self, client):
        return len(self.table.values)

    def _do_delete_key(self, client, key):
        return int(self.table.delete(key))

    def _do_list_keys(self, client):
        return list(self.table.values)

    def _do_queue_push(self, client, key, value):
        self.table.push(key, value)
        self._release(self._waits.pushed(key))

    def _do_queue_pop(self, client, key):
        self._waits.take_turn(client)
        return self.table.pop(key)

    def _do_queue_len(self, client, key):
        return self.table.length(key)

    def _do_barrier(self, client, key, size):
        if self.table.add(key, 1) < size:
            self._waits.open(client, [_barrier(key)])
            return _LATER
        self._release(self._waits.appeared(_barrier(key)))
        return wire.STOP_WAITING

    def _report(self):
        """Who waits for what, as JSON; a client asks for it to make its time-out's message."""
        rows = [
            {
                "who": client.name,
                "keys": [wire.plain(key) for key in keys[:20]],
                "seconds": round(seconds, 1),
            }
            for client, keys, seconds in self._waits.report()
        ]
        return json.dumps(rows).encode()


def _barrier(key):
    """The name under which one waits at a barrier: no WAIT for the counter itself may meet it."""
    return b"barrier " + key


_servers = weakref.WeakSet()


def _forget_in_child():
    """A forked child holds copies of all sockets: close them, or the port outlives the parent."""
    for server in list(_servers):
        server._thread = None
        for sock in (*(c.sock for c in list(server._clients)), server._listener):
            sock.close()
        server._stop.close()
        server._stopped.close()


os.register_at_fork(after_in_child=_forget_in_child)
