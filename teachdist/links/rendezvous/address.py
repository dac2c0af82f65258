"""Which host is this, and at which address do others reach it?

    store on this machine alone      listen on 127.0.0.1
    store at another address         ask the routing table which of ours leads there
    TEACHDIST_SOCKET_IFNAME=eth1     that interface's

Never on all interfaces: a rank can be reached from where its job is, and from nowhere else.
"""

import contextlib
import fcntl
import ipaddress
import os
import socket
import struct


def this_host():
    """A name for this host that two processes share only if they can see each other.

    The kernel's boot id, with the namespaces of processes and of the network: ranks in two
    containers, or in two network namespaces of a test, count as two hosts.
    """
    if "TEACHDIST_HOST" in os.environ:
        return os.environ["TEACHDIST_HOST"]
    parts = [socket.gethostname()]
    with contextlib.suppress(OSError):
        with open("/proc/sys/kernel/random/boot_id") as file:
            parts = [file.read().strip()]
        parts += [os.readlink(f"/proc/self/ns/{kind}") for kind in ("pid", "net")]
    return " ".join(parts)


def address_for(store):
    """The address to listen on: loopback, or the one that leads to the store's host.

    TEACHDIST_SOCKET_IFNAME names an interface instead (as GLOO_SOCKET_IFNAME does for gloo).
    """
    name = os.environ.get("TEACHDIST_SOCKET_IFNAME")
    if name:
        return address_of_interface(name.split(",")[0])
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    host = getattr(store, "host", None)
    if not host:
        return "127.0.0.1"
    try:
        family, kind, _, _, target = socket.getaddrinfo(
            host, getattr(store, "port", 1) or 1, type=socket.SOCK_DGRAM
        )[0]
        with socket.socket(family, kind) as probe:
            probe.connect(target)  # sends nothing: asks the routing table
            address = probe.getsockname()[0].partition("%")[0]
    except OSError:
        return "127.0.0.1"
    if ipaddress.ip_address(address).is_loopback and ":" not in address:
        return "127.0.0.1"
    return address


def address_of_interface(name):
    """The numeric address of a network interface, by its name: IPv4 if it has one, else IPv6."""
    return _ipv4_of(name) or _ipv6_of(name) or _no_interface(name)


def _ipv4_of(name):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            query = struct.pack("256s", name.encode()[:255])
            answer = fcntl.ioctl(probe.fileno(), 0x8915, query)  # SIOCGIFADDR
        except OSError:
            return None
    return socket.inet_ntoa(answer[20:24])


def _ipv6_of(name):
    with contextlib.suppress(OSError), open("/proc/net/if_inet6") as lines:
        for line in lines:
            digits, _, _, scope, _, interface = line.split()
            if interface == name and scope == "00":  # global: others need no zone to reach it
                return str(ipaddress.IPv6Address(bytes.fromhex(digits)))
    return None


def _no_interface(name):
    known = ", ".join(n for _, n in socket.if_nameindex())
    raise ValueError(
        f"TEACHDIST_SOCKET_IFNAME={name!r}: no such interface with an address; this host has "
        f"{known}"
    )
