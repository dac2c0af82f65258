"""The server of a TCPStore: one thread, one loop. (What it answers: answers.py.)

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
import logging
import os
import select
import socket
import threading
import weakref
from functools import partial

from teachdist.spinning import spin
from teachdist.stores.table import NotACounterError
from teachdist.stores.tcp_store import answers, wire
from teachdist.stores.tcp_store.listening import adopt, ip_network, is_within, listen

log = logging.getLogger(__name__)

_CHUNK = 64 << 10
# Both have the same methods and the same numbers; epoll does not slow down with many clients.
_Poll = getattr(select, "epoll", select.poll)
_IN, _OUT = select.POLLIN, select.POLLOUT


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
        self.answers = answers.Answers(self._send)
        self.table, self._waits = self.answers.table, self.answers.waits
        self.max_request = max_request
        try:
            self._allow = [ip_network(network) for network in allow]
        except ValueError as error:
            raise ValueError(f"allow={allow!r}: {error}; networks look like 10.0.0.0/8") from None
        self._clients = {}  # file descriptor -> Client
        self._listener = listen(host, port) if listen_fd is None else adopt(listen_fd, port)
        self.host, self.port = self._listener.getsockname()[:2]
        self._stop, self._stopped = socket.socketpair()
        self._poll = _Poll()
        self._poll.register(self._stopped, _IN)
        self._listen(True)
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
        return self.answers.wait_for_users(count, seconds)

    def names(self):
        """The connected clients, as they called themselves."""
        return [client.name for client in list(self._clients.values())]

    # The loop

    def _serve(self):
        poll, clients = self._poll.poll, self._clients
        look = partial(poll, 0)
        listener, stopped = self._listener.fileno(), self._stopped.fileno()
        while True:
            for fd, events in spin(look) or poll():
                client = clients.get(fd)
                if client is not None:
                    if events & _OUT:
                        self._flush(client)
                    if events & ~_OUT and client.is_open:  # bytes, or the connection's end
                        self._receive(client)
                elif fd == stopped:
                    self._shut()
                    return
                elif fd == listener:
                    self._accept()

    def _listen(self, on):
        """Look after the listening socket, or leave it alone for now."""
        self._listening = on
        self._poll.register(self._listener, _IN) if on else self._poll.unregister(self._listener)

    def _accept(self):
        try:
            sock, address = self._listener.accept()
        except OSError as error:  # it hung up before we came, or we are out of file descriptors
            log.warning("store server on port %d cannot accept a client: %s", self.port, error)
            if error.errno in (errno.EMFILE, errno.ENFILE):
                self._listen(False)  # until somebody hangs up
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client = Client(sock, address, self.max_request)
        self._clients[sock.fileno()] = client
        self._poll.register(sock, _IN)
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
                self.answers.answer(client, op, arguments)
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
            if len(client.answers) > answers.KEPT_AT_MOST:
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
            self._poll.modify(client.sock, _IN | _OUT)

    def _flush(self, client):
        """The socket takes more of what is kept."""
        try:
            del client.answers[: client.sock.send(client.answers)]
        except OSError:
            self._hang_up(client)
            return
        if not client.answers:
            self._poll.modify(client.sock, _IN)

    def _hang_up(self, client, why=None):
        """Forget a client: its socket, its waits, and the turn it had at a queue."""
        if not client.is_open:
            return
        client.is_open = False
        del self._clients[client.sock.fileno()]
        if why:
            log.warning("store server on port %d hangs up on %s: %s", self.port, client.name, why)
        self._poll.unregister(client.sock)
        client.sock.close()
        if not self._listening:
            self._listen(True)
        self.answers.forget(client)

    def _shut(self):
        for sock in (*(c.sock for c in self._clients.values()), self._listener, self._stopped):
            sock.close()
        self._clients.clear()
        if hasattr(self._poll, "close"):
            self._poll.close()


_servers = weakref.WeakSet()


def _forget_in_child():
    """A forked child holds copies of all sockets: close them, or the port outlives the parent."""
    for server in list(_servers):
        server._thread = None
        for sock in (*(c.sock for c in list(server._clients.values())), server._listener):
            sock.close()
        server._stop.close()
        server._stopped.close()


os.register_at_fork(after_in_child=_forget_in_child)
