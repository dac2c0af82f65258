"""On which address a server listens, and from where it takes connections."""

import socket
from ipaddress import ip_address, ip_network

__all__ = ["adopt", "ip_network", "is_within", "listen"]

_BACKLOG = 4096  # clients that knock at once before the first is let in; the system may lower it


def is_within(text, networks):
    """Whether an address, as ``accept`` gave it, lies in one of these networks."""
    address = ip_address(text.split("%")[0])
    address = getattr(address, "ipv4_mapped", None) or address
    return any(address in network for network in networks)


def listen(host, port):
    """A socket that listens on one address of this machine, the first that ``host`` stands for."""
    if not host:
        dual = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if dual else socket.AF_INET
        return socket.create_server(
            ("", port), family=family, backlog=_BACKLOG, dualstack_ipv6=dual
        )
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    return socket.create_server(address[:2], family=family, backlog=_BACKLOG)


def adopt(fd, port):
    """The bound socket with this file descriptor, listening; it is the caller's from now on."""
    listener = socket.socket(fileno=fd)
    actual = listener.getsockname()[1]
    if port not in (0, actual):
        listener.close()
        raise OSError(f"master_listen_fd is bound to port {actual}, but port={port} was asked for")
    listener.listen(_BACKLOG)
    return listener
