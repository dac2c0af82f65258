"""The servers of this process, and how many stores are the masters of each.

A TCPStore with ``is_master=True`` starts a server. With ``multi_tenant=True`` a second master of
the same process on the same port becomes a tenant of that server; it ends with its last tenant.
"""

import errno
import threading

from torch.distributed import DistNetworkError

from teachdist.stores.tcp_store.server import Server
from teachdist.stores.who import me

_shared = {}  # port -> Server that several may share
_tenants = {}  # Server -> how many masters it has
# Reentrant, as a store may be collected, and leave, while another one starts in the same thread.
_lock = threading.RLock()


def start(host, port, multi_tenant, listen_fd, allow):
    """The server of a master: a new one, or one that it shares.

    Raises:
        DistNetworkError: the port cannot be listened on; it says what to do.
    """
    with _lock:
        server = _shared.get(port) if multi_tenant and port else None
        if server is not None:
            _tenants[server] += 1
            return server
        try:
            server = Server(host, port, listen_fd=listen_fd, allow=allow)
        except OSError as error:
            raise DistNetworkError(_cannot_listen(host, port, error)) from error
        _tenants[server] = 1
        if multi_tenant:
            _shared[server.port] = server
        return server


def leave(server):
    """A master goes; the last one of a server ends it."""
    with _lock:
        _tenants[server] -= 1
        if _tenants[server]:
            return
        del _tenants[server]
        if _shared.get(server.port) is server:
            del _shared[server.port]
    server.close()


def _cannot_listen(host, port, error):
    hint = {
        errno.EADDRINUSE: "Another server is there: of this launch (two ranks with is_master=True) "
        "or of another one on the same port. End it, or take port 0 and read .port.",
        errno.EADDRNOTAVAIL: "That address is not one of this machine: the master must run where "
        "host_name points to, or be given bind='' to listen on all addresses.",
    }.get(error.errno, "")
    return f"{me()}: the TCPStore server cannot listen on {host}:{port}: {error}. {hint}"
