"""Who is where, and which kind of link serves whom.

When a group is made, each rank leaves a *card* in the store: its host, its process, the address
of its switchboard, a secret that a caller must know, and where its page of the board is. Cards
are read when first needed; making a group costs each rank one message to the store and waits
for nobody. From the cards follows, equally on all ranks, which ranks share a host (the layout
that two-level algorithms ask for), and for each peer the kind of link:

    same process -> threads.py         otherwise -> tcp.py
"""

import contextlib
import ipaddress
import json
import os
import secrets
import socket
from dataclasses import dataclass
from datetime import timedelta

from teachdist.links.board import Window, alive
from teachdist.links.errors import PeerLost
from teachdist.links.switchboard import COLLECTIVE, MAIL, hang_up, switchboard
from teachdist.links.tcp import Sockets, TcpLinks
from teachdist.links.threads import ThreadLinks


@dataclass(frozen=True)
class Card:
    """What a rank tells the others about itself."""

    rank: int
    host: str
    pid: int
    address: tuple
    secret: bytes
    board: str

    def dumps(self):
        """As bytes for the store."""
        return json.dumps({**self.__dict__, "secret": self.secret.hex()}).encode()

    @classmethod
    def loads(cls, data):
        """From the store's bytes."""
        fields = json.loads(data)
        fields["secret"] = bytes.fromhex(fields["secret"])
        fields["address"] = tuple(fields["address"])
        return cls(**fields)


class Roster:
    """The cards of one group in one generation; publishes this rank's own when made."""

    def __init__(self, store, rank, size, generation, page):
        self.store = store
        self.rank = rank
        self.size = size
        self.generation = generation
        self.secret = secrets.token_bytes(16)
        self._door = switchboard(address_for(store))
        self._door.expect(self.secret, self._put_through)
        self._sockets = {p: Sockets(self, p) for p in (COLLECTIVE, MAIL)}
        self._windows = {}
        mine = Card(rank, this_host(), os.getpid(), self._door.address, self.secret, page.place)
        self._cards = {rank: mine}
        store.set(self._key(rank), mine.dumps())

    def _key(self, rank):
        return f"card/{self.generation}/{rank}"

    def _put_through(self, generation, purpose, rank, sock):
        sockets = self._sockets.get(purpose)
        return generation == self.generation and sockets and sockets.arrived(rank, sock)

    def sockets(self, purpose):
        """This rank's connections for collectives or for mail."""
        return self._sockets[purpose]

    def known(self, peer):
        """The card of `peer` if it has been read, or can be read without waiting; else None."""
        if peer not in self._cards and self.store.check([self._key(peer)]):
            self._cards[peer] = Card.loads(self.store.get(self._key(peer)))
        return self._cards.get(peer)

    def card(self, peer, patience):
        """The card of `peer`, waiting for it if it has not joined yet."""
        while peer not in self._cards:
            key = self._key(peer)
            try:
                # In short waits: the store's client waits in C++, deaf to Ctrl-C.
                self.store.wait([key], timedelta(seconds=max(0.01, patience.tick())))
            except Exception as error:
                if "timeout" not in str(error).lower() and "timed out" not in str(error).lower():
                    raise PeerLost(
                        f"the store does not answer, where rank {peer} should have left its "
                        f"address: {error}",
                        peer,
                    ) from error
                patience.over([peer])
                continue
            self._cards[peer] = Card.loads(self.store.get(key))
        return self._cards[peer]

    def hosts(self, patience):
        """For each rank the number of its host, counted in order of rank: (0, 0, 1, 1)."""
        names = [self.card(rank, patience).host for rank in range(self.size)]
        order = list(dict.fromkeys(names))
        return tuple(order.index(name) for name in names)

    def position(self, peer):
        """What the board says of `peer`, or None where this rank cannot look."""
        card = self.known(peer)
        if card is None or card.host != this_host():
            return None
        if peer not in self._windows:
            try:
                self._windows[peer] = Window(card.board)
            except OSError:
                return None
        return self._windows[peer].read()

    def gone(self, peer):
        """Whether the process of `peer` is known to have ended (False where one can't know)."""
        card = self._cards.get(peer)
        return card is not None and card.host == this_host() and not alive(card.pid)

    def watch_all(self, patience):
        """Open every page of the board on this host, so that they outlive their owners."""
        for peer in range(self.size):
            self.card(peer, patience)
            self.position(peer)

    def abandon(self):
        """In a forked child: close the copies of the parent's connections, telling nobody."""
        for sockets in self._sockets.values():
            sockets.abandon()

    def close(self):
        """Leave: hang up and forget the secret."""
        for sockets in self._sockets.values():
            sockets.close()
        hang_up(self.secret)
        for window in self._windows.values():
            window.close()
        self._windows.clear()


class Links:
    """All links of one rank in a group: per round, `post` what goes out, `take` what comes in.

    Rounds are aligned: what is posted in round k is taken in round k. Chunks are memoryviews
    of bytes. The first message of a call to each peer carries the words that describe it.
    """

    def __init__(self, roster):
        self.roster = roster
        self._tcp = TcpLinks(roster.sockets(COLLECTIVE))
        self._threads = ThreadLinks(roster)
        self._kinds = {}

    def _kind(self, peer, patience):
        if peer not in self._kinds:
            card = self.roster.card(peer, patience)
            here = card.host == this_host() and card.pid == os.getpid()
            self._kinds[peer] = self._threads if here else self._tcp
        return self._kinds[peer]

    def _split(self, by_peer, patience):
        parts = {}
        for peer, value in by_peer.items():
            parts.setdefault(self._kind(peer, patience), {})[peer] = value
        return parts

    def post(self, header, words, outgoing, patience):
        """Begin to send outgoing[peer] = (chunks, with_words); see `TcpLinks.post`."""
        for link, part in self._split(outgoing, patience).items():
            link.post(header, words, part, patience)

    def take(self, header, incoming, patience):
        """Wait for incoming[peer] = [(length or None, buffer or None), ...]; the bytes by peer.

        Returns when everything is here and everything posted is out.
        """
        results = {}
        parts = self._split(incoming, patience)
        for link in (self._tcp, self._threads):
            results |= link.take(header, parts.get(link, {}), patience)
        return results

    def close(self):
        """Leave the group's links."""
        self._threads.close()
        self._tcp.close()


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
    """The numeric address of a network interface, by its name."""
    import fcntl
    import struct

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            query = struct.pack("256s", name.encode()[:255])
            answer = fcntl.ioctl(probe.fileno(), 0x8915, query)  # SIOCGIFADDR
        except OSError as error:
            known = ", ".join(n for _, n in socket.if_nameindex())
            raise ValueError(
                f"TEACHDIST_SOCKET_IFNAME={name!r}: no such interface with an IPv4 address; "
                f"this host has {known}"
            ) from error
    return socket.inet_ntoa(answer[20:24])
