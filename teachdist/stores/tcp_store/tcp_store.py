"""TCPStore: a server holds the data, clients ask it over TCP.

This is torch's ``TCPStore`` in Python and the same on the wire: our client works with torch's
server and torch's client with ours. What is said is in wire.py, how the server works in
server.py, how a connection recovers in connection.py; here is what each method says.

A store with ``is_master=True`` starts the server, a thread of this process, and is its first
client.
"""

import errno
import logging
import os
from datetime import timedelta

from torch.distributed import DistNetworkError, DistStoreError, QueueEmptyError

from teachdist.stores.base import Deadline, Store, blob, integer, text, texts
from teachdist.stores.table import I64, shorten
from teachdist.stores.tcp_store import wire
from teachdist.stores.tcp_store.connection import Connection
from teachdist.stores.tcp_store.tenants import leave, start
from teachdist.stores.who import me

log = logging.getLogger(__name__)


class TCPStore(Store):
    """A key-value store on a server, reached over TCP.

    Args:
        host_name: the server's host name or address. The server listens on this address.
        port: its port; 0 lets the server pick one, to be read from ``.port``.
        world_size: number of users, the server's own included; None when it is not fixed.
        is_master: True for the one that starts the server. Under torchrun, whose agent serves the
            store of MASTER_PORT (TORCHELASTIC_USE_AGENT_STORE), it is a client like the others.
        timeout: for construction and for get(), wait() and the like.
        wait_for_workers: whether the master waits until ``world_size`` users are connected.
        multi_tenant: masters of one process on one port share a server.
        master_listen_fd: a socket, bound to ``port``, on which the server is to listen.
        use_libuv: kept for ``libuvBackend``; our server has but one event loop, whatever this says.
        bind: address on which the server listens instead of host_name's ("" for all).
        allow: networks ("10.0.0.0/8") from which the server takes connections; empty for any.

    Raises:
        ValueError: ``port`` or ``world_size`` is none.
        DistNetworkError: no server answers in time, or the port cannot be listened on.
        DistStoreError: not all workers joined in time.
    """

    def __init__(
        self,
        host_name,
        port,
        world_size=None,
        is_master=False,
        timeout=timedelta(seconds=300),
        wait_for_workers=True,
        multi_tenant=False,
        master_listen_fd=None,
        use_libuv=True,
        *,
        bind=None,
        allow=(),
    ):
        super().__init__()
        self._server = self._connection = None
        self.set_timeout(timeout)
        self._use_libuv = use_libuv
        port = integer(port, "TCPStore", "port")
        if not 0 <= port < 1 << 16:
            raise ValueError(f"TCPStore: port={port}; ports are 1 to 65535, and 0 for a free one")
        users = -1 if world_size is None else integer(world_size, "TCPStore", "world_size")
        if users == 0 or users < -1:
            raise ValueError(
                f"TCPStore: world_size={users}; it is the number of users, at least 1, or None "
                "when it is not fixed"
            )
        if is_master:
            address = host_name if bind is None else bind
            self._server = _started(address, port, multi_tenant, master_listen_fd, allow)
            port = self._server.port if self._server is not None else port
        self._connection = Connection(host_name, port, self.seconds())
        if wait_for_workers and users >= 0:
            self._join(users)

    def _join(self, users):
        """Count ourselves in; the master waits for the others."""
        count = self._connection.ask("ADD", wire.USERS, 1)
        if count > users:
            log.warning(
                "%s is user %d of a TCPStore at %s for %d (world_size). Is this a second launch on "
                "the same server? Its keys are the first one's.",
                me(), count, self._connection, users,
            )  # fmt: skip
        if self._server is None:
            return
        count = self._server.wait_for_users(users, self.seconds())
        if count < users:
            names = "; ".join(self._server.names())
            self.close()
            raise DistStoreError(
                f"{me()}: {count} of {users} users (world_size) have joined the TCPStore at "
                f"{self._connection} after {self.seconds():.1f} s; {users - count} are missing. "
                f"Connected: {names}. Look at the ranks not named here: did they start, and with "
                "this address and port?"
            )

    host = property(lambda self: self._connection.host, doc="Host name of the server.")
    port = property(lambda self: self._connection.port, doc="Port on which the server listens.")
    libuvBackend = property(lambda self: self._use_libuv, doc="What use_libuv was.")  # noqa: N815

    def __repr__(self):
        role = "server and client" if self._server else "client"
        return f"teachdist.stores.TCPStore({self._connection}, {role})"

    def clone(self):
        """Another client of the same server, with a connection of its own."""
        other = TCPStore.__new__(TCPStore)
        Store.__init__(other)
        other.set_timeout(self.timeout)
        other._use_libuv, other._server = self._use_libuv, None
        other._connection = Connection(self.host, self.port)  # connects when it is used
        return self.lend(other)

    @property
    def is_idle(self):
        """Whether there is no connection, and no server here."""
        return self._server is None and not self._connection.is_open

    def close(self):
        """Hang up; the last master of a server ends the server."""
        if self._connection is not None:
            self._connection.close()
        server, self._server = self._server, None
        if server is not None:
            leave(server)

    # Values

    def set(self, key, value):
        """Put a value (str or bytes) under a key, over an earlier one."""
        self._connection.ask("SET", _wired(key), blob(value))

    def get(self, key):
        """The key's value as bytes; waits for it up to the time-out.

        Raises:
            DistStoreError: nobody set it in time.
        """
        key = _wired(key)
        # torch's server may hang up on a GET of a key that is not there; ours answers.
        if self._connection.server_is_ours:
            value = self._connection.peek(key, self.seconds())
            if value is not None:
                return value
        self._connection.wait([key], self.seconds(), f"TCPStore.get({wire.plain(key)!r})")
        return self._connection.ask("GET", key)

    def add(self, key, amount):
        """Count ``amount`` on to the counter ``key`` (made by the first call); the new value.

        Raises:
            DistStoreError: the key holds no counter.
        """
        key, amount = _wired(key), integer(amount, "TCPStore.add", "amount")
        try:
            return self._connection.ask("ADD", key, amount)
        except DistNetworkError as error:
            raise self._why_add_failed(key, amount, error) from error

    def _why_add_failed(self, key, amount, error):
        """The server can only hang up. Ask it, on a new connection, what the key holds."""
        try:
            held = self._connection.ask("CHECK", [key]) == wire.READY
            value = self._connection.ask("GET", key) if held else b"0"
        except DistNetworkError:
            return error
        if not value.removeprefix(b"-").isdigit():
            why = "that is no number"
        elif int(value) + amount not in I64:
            why = "the sum does not fit 64 bits"
        elif held and self._connection.server_is_ours:
            why = "a counter is made by add(), not by set()"
        else:
            return error
        return DistStoreError(
            f"{me()}: TCPStore.add({wire.plain(key)!r}, {amount}): the key holds {shorten(value)}; "
            f"{why}. Use another key for the counter, or delete_key() first; the store is usable."
        )

    def append(self, key, value):
        """Put ``value`` at the end of the key's value; makes the key when it is absent."""
        self._connection.ask("APPEND", _wired(key), blob(value))

    def compare_set(self, key, expected_value, desired_value):
        """Replace ``expected_value`` ("" for an absent key); returns the value the key has then."""
        expected, desired = blob(expected_value), blob(desired_value)
        return self._connection.ask("COMPARE_SET", _wired(key), expected, desired)

    def multi_get(self, keys):
        """The values of all keys, in order; waits for missing ones."""
        keys = [_wired(key) for key in texts(keys, "multi_get")]
        self._connection.wait(keys, self.seconds(), "TCPStore.multi_get")
        return self._connection.ask("MULTI_GET", keys)

    def multi_set(self, keys, values):
        """Set each key to the value at the same place of the second list."""
        pairs = [(_wired(key), value) for key, value in self.pairs(keys, values)]
        self._connection.ask("MULTI_SET", pairs)

    # Keys

    def check(self, keys):
        """Whether all keys exist (a queue that is not empty counts)."""
        keys = [_wired(key) for key in texts(keys, "check")]
        return self._connection.ask("CHECK", keys) == wire.READY

    def wait_for(self, keys, seconds, what):
        """Wait for all keys; ``what`` names the call in the error."""
        self._connection.wait([_wired(key) for key in keys], seconds, what)

    def delete_key(self, key):
        """Delete a key; whether there was one."""
        return self._connection.ask("DELETE_KEY", _wired(key)) == 1

    def num_keys(self):
        """Number of keys, the one that counts the users included."""
        return self._connection.ask("GETNUMKEYS")

    def list_keys(self):
        """All keys, in no particular order."""
        keys = self._connection.ask("LIST_KEYS")
        return [wire.plain(key) for key in keys if key.startswith(b"/")]

    def barrier(self, key, world_size, timeout=None):
        """Wait until ``world_size`` callers have come to the barrier ``key``."""
        size = integer(world_size, "TCPStore.barrier", "world_size")
        what = f"TCPStore.barrier({key!r}, {size})"
        self._connection.barrier(_wired(key), size, self.seconds(timeout), what)

    # Queues

    def queue_push(self, key, value):
        """Put a value at the end of a queue."""
        self._connection.ask("QUEUE_PUSH", _wired(key), blob(value))

    def queue_pop(self, key, block=True):
        """Take the oldest value of a queue; with ``block``, wait for one up to the time-out.

        Raises:
            QueueEmptyError: there is none and ``block`` is False.
            DistStoreError: there was none in time.
        """
        key, deadline = _wired(key), Deadline(self.seconds())
        what = f"TCPStore.queue_pop({wire.plain(key)!r})"
        while True:
            if block:
                self._connection.wait([key], deadline.left(), what)
            value = self._connection.ask("QUEUE_POP", key)
            if value is not None:
                return value
            # With block, another client was faster between our wait and our pop: wait again.
            if not block:
                raise QueueEmptyError(f"{what}: the queue is empty, and block=False")

    def queue_len(self, key):
        """Number of values in the queue; 0 when there is no such queue."""
        return self._connection.ask("QUEUE_LEN", _wired(key))


def _started(address, port, *options):
    """The server of a master; None where torchrun's agent has one on this port, as in torch."""
    try:
        return start(address, port, *options)
    except DistNetworkError as error:
        by_agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE", "").lower() in ("1", "true")
        taken = getattr(error.__cause__, "errno", None) == errno.EADDRINUSE
        if by_agent and taken and os.environ.get("MASTER_PORT") == str(port):
            return None
        raise


def _wired(key):
    """A key as it goes over the wire."""
    return f"/{text(key, 'TCPStore')}".encode("utf-8", "surrogateescape")
