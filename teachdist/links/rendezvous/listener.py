"""The listener: one listening socket per process, where other ranks call in.

Every group of this process publishes a secret of its own through the store; a rank that wants
a connection dials this process's one address and says first, in 48 bytes, whom it wants:

    "tdHI" | secret of the group (16) | generation | purpose | rank of the caller | pid | memory

A thread asleep in a read answers. It hands the connection to the group that the secret names
and hangs up on everybody else: who cannot read the job's store has no secret, and nothing that
a stranger sends gets further than these 48 bytes. Callers that say nothing are dropped after
`PATIENCE` seconds, and at most `MAX_WAITING` may be waiting to speak.

The socket binds to the loopback, or to the address that `address_for` picks, never to all
interfaces.
"""

import contextlib
import errno
import os
import select
import selectors
import socket
import struct
import threading
import time

from teachdist.links.errors import LinkError

HELLO = struct.Struct("<4s16sIIIIi8x")
_MAGIC = b"tdHI"
PATIENCE = 5.0
MAX_WAITING = 256
NEAR = 1 << 18  # bytes that wait for a receiver on the same host; the system takes it twice

COLLECTIVE, P2P, INQUIRY, NEWS = 1, 2, 3, 4


class Listener:
    """Listens on `host` (a numeric address) and a port of the system's choice."""

    def __init__(self, host="127.0.0.1"):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.pid = os.getpid()
        self._socket = socket.create_server((host, 0), family=family, backlog=512)
        self._socket.setblocking(False)
        self.address = self._socket.getsockname()[:2]
        self._wanted = {}
        self._lock = threading.Lock()
        self._bell, self._ring = socket.socketpair()
        self._thread = threading.Thread(target=self._answer, name="teachdist-listener", daemon=True)
        self._thread.start()

    def expect(self, secret, receiver):
        """Connections with this secret go to receiver(generation, purpose, rank, socket, offer).

        offer: (process, descriptor) of memory that the caller would share, or None. The receiver
        answers whether it takes the socket.
        """
        with self._lock:
            self._wanted[secret] = receiver

    def forget(self, secret):
        """Refuse this secret from now on; True when nobody is left who expects calls."""
        with self._lock:
            self._wanted.pop(secret, None)
            return not self._wanted

    def close(self):
        """Stop listening."""
        if self.pid != os.getpid():
            self._socket.close()
            return
        with contextlib.suppress(OSError):
            self._ring.send(b"x")
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout=5)

    def _answer(self):
        waiting = {}  # socket -> (bytes so far, when it called)
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ)
            selector.register(self._bell, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select(1.0 if waiting else None):
                    if key.fileobj is self._bell:
                        for caller in [*waiting, self._socket, self._bell, self._ring]:
                            caller.close()
                        return
                    if key.fileobj is self._socket:
                        self._accept(selector, waiting)
                    else:
                        self._listen_to(key.fileobj, selector, waiting)
                now = time.monotonic()
                late = [c for c, (_, since) in waiting.items() if now - since > PATIENCE]
                for caller in late + list(waiting)[: max(0, len(waiting) - MAX_WAITING)]:
                    if waiting.pop(caller, None):
                        selector.unregister(caller)
                        caller.close()

    def _accept(self, selector, waiting):
        try:
            caller, _ = self._socket.accept()
        except OSError:  # gone again, or no file descriptor is left: the caller notices
            time.sleep(0.01)
            return
        caller.setblocking(False)
        waiting[caller] = (b"", time.monotonic())
        selector.register(caller, selectors.EVENT_READ)

    def _listen_to(self, caller, selector, waiting):
        said, since = waiting[caller]
        try:
            more = caller.recv(HELLO.size - len(said))
        except BlockingIOError:
            return
        except OSError:
            more = b""
        said += more
        if more and len(said) < HELLO.size:
            waiting[caller] = (said, since)
            return
        selector.unregister(caller)
        del waiting[caller]
        if not self._put_through(said, caller):
            caller.close()

    def _put_through(self, said, caller):
        if len(said) < HELLO.size:
            return False
        magic, secret, generation, purpose, rank, pid, memory = HELLO.unpack(said)
        with self._lock:
            receiver = self._wanted.get(secret)
        if magic != _MAGIC or receiver is None:
            return False
        tune(caller)
        offer = (pid, memory) if memory >= 0 else None
        return receiver(generation, purpose, rank, caller, offer)


class Unreachable(LinkError):
    """Nobody answers at an address."""


def dial(address, secret, generation, purpose, rank, timeout=None, memory=-1, wait=None):
    """Connect to another process's listener; the connection is then that group's.

    It does not block. timeout: seconds to wait for it; or wait(socket, event): waits as it likes.
    memory: a descriptor of memory to share. Raises Unreachable.
    """
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        error = sock.connect_ex(tuple(address))
        if error == errno.EINPROGRESS:
            if wait is not None:
                wait(sock, select.POLLOUT)
            elif not _writable_within(sock, timeout):
                raise TimeoutError("timed out")
            error = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            raise OSError(error, os.strerror(error))
        tune(sock)
        sock.send(HELLO.pack(_MAGIC, secret, generation, purpose, rank, os.getpid(), memory))
    except OSError as error:
        sock.close()
        raise Unreachable(f"no connection to {address[0]}:{address[1]}: {error}") from error
    except BaseException:
        sock.close()
        raise
    return sock


def _writable_within(sock, seconds):
    poll = select.poll()
    poll.register(sock, select.POLLOUT)
    return bool(poll.poll(seconds * 1000))


def tune(sock):
    """Small messages must not wait for company (Nagle); on one host few bytes are on their way.

    A distant receiver is kept busy by a large buffer, which the system makes as large as the
    distance wants it. On one host there is no distance: what waits in a large buffer has only left
    the processor's cache by the time it is received.
    """
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with contextlib.suppress(OSError):  # gone already, which whoever reads will notice
        if sock.getpeername()[0] == sock.getsockname()[0]:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, NEAR)


_current = None
_guard = threading.Lock()


def listener(host="127.0.0.1"):
    """The process's listener, opened when first asked for (and anew after a fork)."""
    global _current
    with _guard:
        if _current is None or _current.pid != os.getpid():
            _current = Listener(host)
        return _current


def hang_up(secret):
    """A group is gone: forget its secret, and close the listener with the last one."""
    global _current
    with _guard:
        if _current is not None and _current.pid == os.getpid() and _current.forget(secret):
            _current.close()
            _current = None


def _after_fork():
    """A child has none of its parent's threads: it opens a listener of its own."""
    global _current, _guard
    _current, _guard = None, threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
