"""The client's end of a connection to a TCPStore server: ask, wait, and recover.

The wire format has no error reply and no request number, so an exchange that breaks in the middle
(a time-out in a reply, Ctrl-C, a server that hangs up) leaves a connection on which nobody knows
which answer belongs to which question. There is one cure for all of these: hang up. The server
drops what this client waited for, and the next request opens a new connection. So a store stays
usable after every error, where torch's client is lost once its connection is.

What cannot be cured is not hidden: a request without a reply (SET) may be lost with its connection,
and is not repeated, as an ADD done twice would be worse. The error says what was under way.

Waiting is done in Python, in ``poll``: Ctrl-C ends it at once, the time-out is ours, and a rank
that waits long says so in the log.
"""

import json
import logging
import os
import select
import socket
import struct
import threading
import time
import weakref
from functools import partial

from torch.distributed import DistNetworkError, DistStoreError

from teachdist.spinning import spin
from teachdist.stores.tcp_store import wire, words
from teachdist.stores.who import me

log = logging.getLogger(__name__)

SAY_AFTER = 5.0  # seconds of waiting after which the log says for what
ANSWER_WITHIN = 60.0  # seconds that a server may take for what it can answer at once
CANCELLED_WITHIN = 2.0  # ... when the time of who asks is up
_RETRY_AFTER = 0.05


class Connection:
    """A connection to the server at ``host``:``port``, opened again when it was lost.

    ``seconds``: how long to try to connect at once; None connects at the first request.
    """

    def __init__(self, host, port, seconds=None):
        self.host, self.port = host, port
        self.server_is_ours = False
        self._socket = None
        self._received = b""  # what came and was not asked for yet
        self.under_way = ("nothing yet", ())  # the request, for messages
        self._lock = threading.Lock()
        if seconds is not None:
            self._connect(seconds)
        _connections.add(self)

    def __str__(self):
        return f"{self.host}:{self.port}"

    @property
    def is_open(self):
        """Whether there is a connection now."""
        return self._socket is not None

    def close(self):
        """Hang up; the next request connects again."""
        sock, self._socket, self._received = self._socket, None, b""
        if sock is not None:
            sock.close()

    # One exchange

    def ask(self, name, *arguments):
        """Send a request and return its answer (None for requests that have none)."""
        return self._exchange(self._ask, name, arguments)

    def asked(self, name, *arguments):
        """The answer to a request within an exchange that is under way."""
        return self._ask(name, arguments)

    def peek(self, key, seconds):
        """The key's value, or None if it is missing: one round trip; WAIT and GET are two."""
        return self._exchange(self._peek, "GET", (key,), seconds)

    def wait(self, keys, seconds, what):
        """Wait until all keys exist; ``what`` names the call in messages.

        Raises:
            DistStoreError: they do not within ``seconds``; it names the missing keys and who waits.
            DistNetworkError: the server is gone.
        """
        self._until(seconds, what, "WAIT", keys)

    def barrier(self, key, size, seconds, what):
        """Wait until ``size`` clients have come to the barrier ``key``."""
        self._until(seconds, what, "BARRIER", key, size)

    def _until(self, seconds, what, name, *arguments):
        self._exchange(self._wait, name, arguments, seconds, what)

    def _wait(self, name, arguments, seconds, what):
        self._send(name, *arguments)
        if self._answered_within(seconds, what, name, arguments):
            self._number(_U8)
        elif not self._cancel():
            raise DistStoreError(words.timed_out(self, seconds, what, name, arguments))

    def _in_haste(self, seconds):
        """Wait for an answer that the server has at once; a server that is stopped has none."""
        if not self._poll(1000 * seconds):
            raise TimeoutError(f"the server has not answered for {seconds:.2g} s: is it stopped?")

    def _answered_within(self, seconds, what, name, arguments):
        poll = self._poll
        if seconds <= SAY_AFTER:
            return poll(1000 * seconds)
        if poll(1000 * SAY_AFTER):
            return True
        awaited = words.request(name, arguments)
        log.warning(
            "%s: %s at %s still waits, after %.0f s: %s", me(), what, self, SAY_AFTER, awaited
        )
        return poll(1000 * (seconds - SAY_AFTER))

    def _cancel(self):
        """Take the wait back; True if its answer came first after all."""
        self._send("CANCEL_WAIT")
        self._in_haste(CANCELLED_WITHIN)
        raced = self._number(_U8) == wire.STOP_WAITING
        return raced and self._number(_U8) == wire.WAIT_CANCELED

    def _ask(self, name, arguments):
        self.under_way = (name, arguments)
        self._socket.sendall(wire.request(name, *arguments))
        op = wire.BY_NAME[name]
        number = _FIXED.get(op.reply)
        if number is not None:
            return number.unpack(self._exactly(number.size))[0]
        return self._receive(op, arguments) if op.reply else None

    def _peek(self, name, arguments, seconds):
        self.under_way = (name, arguments)
        self._socket.sendall(wire.request("CHECK", arguments) + wire.request("GET", *arguments))
        if not self._received and not spin(self._look):
            self._in_haste(min(max(seconds, CANCELLED_WITHIN), ANSWER_WITHIN))
        exists = self._number(_U8) == wire.READY
        value = self._receive(wire.BY_NAME["GET"], arguments)
        return value if exists else None

    def _send(self, name, *arguments):
        self.under_way = (name, arguments)
        self._socket.sendall(wire.request(name, *arguments))

    def _number(self, number):
        return number.unpack(self._exactly(number.size))[0]

    def _receive(self, op, arguments):
        reading = wire.read_reply(op, arguments)
        data = None
        while True:
            try:
                data = self._exactly(reading.send(data))
            except StopIteration as done:
                return done.value

    def _exactly(self, size):
        if not self._received and size:
            spin(self._look)
            data = self._socket.recv(4096)
            if len(data) == size:  # as it is for nearly all answers
                return data
            if not data:
                raise ConnectionError("the server hung up")
            self._received = data
        parts, got = [self._received], len(self._received)
        while got < size:
            parts.append(self._socket.recv(max(size - got, 4096)))
            if not parts[-1]:
                raise ConnectionError("the server hung up")
            got += len(parts[-1])
        data = b"".join(parts) if len(parts) > 1 else parts[0]
        self._received = data[size:]
        return data[:size]

    def _exchange(self, do, name, arguments, *more):
        """Hold the connection for one exchange; hang up if it ends in an error."""
        if not self._lock.acquire(False) and not self._lock.acquire(timeout=ANSWER_WITHIN):
            raise DistStoreError(
                f"{name}: another thread has been waiting on this store object for "
                f"{ANSWER_WITHIN:.0f} s. Give each thread its own: store.clone()."
            )
        try:
            if self._socket is None:
                self._connect(ANSWER_WITHIN)
            return do(name, arguments, *more)
        except DistStoreError:  # in vain, but in order: the connection is as it was
            raise
        except (OSError, wire.WireError) as error:
            self.close()
            raise DistNetworkError(words.lost(self, error, name, arguments)) from error
        except BaseException:
            self.close()
            raise
        finally:
            self._lock.release()

    # Opening

    def _connect(self, seconds):
        """Connect, trying again while nobody listens: clients may start before the server."""
        deadline = time.monotonic() + seconds
        while True:
            left = deadline - time.monotonic()
            try:
                self.under_way = ("connecting", ())
                self._socket = socket.create_connection((self.host, self.port), max(left, 0.001))
                self.under_way = ("introducing", ())
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._limit(min(max(deadline - time.monotonic(), 0.001), ANSWER_WITHIN))
                poll = select.poll()
                poll.register(self._socket, select.POLLIN)
                self._poll, self._look = poll.poll, partial(poll.poll, 0)
                self._introduce()
                self._limit(ANSWER_WITHIN)
                return
            except OSError as error:
                self.close()
                if deadline - time.monotonic() < _RETRY_AFTER:
                    silent = isinstance(error, BlockingIOError)  # the socket's limit
                    why = words.silent if silent else words.unreached
                    raise DistNetworkError(why(self, seconds, error)) from error
            time.sleep(_RETRY_AFTER)

    def _limit(self, seconds):
        """How long the socket may block: as its option that costs nothing.

        settimeout() would make every call two, a poll and the call.
        """
        whole = int(seconds)
        limit = struct.pack("@ll", whole, int((seconds - whole) * 1e6))
        self._socket.settimeout(None)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)

    def _introduce(self):
        nonce = os.getpid() & 0xFFFFFFFF
        self._socket.sendall(
            wire.request("VALIDATE", wire.MAGIC)
            + wire.request("PING", nonce)
            + wire.request("CHECK", [wire.WAITING])
        )
        if self._number(_U32) != nonce:
            raise ConnectionError("what answers there is no TCPStore server")
        self.server_is_ours = self._number(_U8) == wire.READY
        if self.server_is_ours:
            self._send("SET", wire.INTRODUCTION, json.dumps(me().as_dict()).encode())


_U8, _U32, _I64 = (struct.Struct(f) for f in ("<B", "<I", "<q"))
_FIXED = {"u8": _U8, "u32": _U32, "i64": _I64}


_connections = weakref.WeakSet()


def _forget_in_child():
    """A forked child must not talk on its parent's connections: it opens its own at need."""
    for connection in list(_connections):
        connection._lock = threading.Lock()
        connection.close()


os.register_at_fork(after_in_child=_forget_in_child)
