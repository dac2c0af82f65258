"""Who is where, and which kind of link serves whom.

When a group is made, each rank leaves a *card* in the store: its host, its process, the address
of its switchboard, a secret that a caller must know, and where its page of the board is. Cards
are read when first needed; making a group costs each rank one message to the store and waits
for nobody. From the cards follows, equally on all ranks, which ranks share a host (the layout
that two-level algorithms ask for), and for each peer the kind of link:

    same process -> threads.py     same host -> shm.py     otherwise -> tcp.py
"""

import contextlib
import ipaddress
import json
import logging
import os
import secrets
import socket
import time
from dataclasses import dataclass

from teachdist.links.errors import LinkError, PeerLost
from teachdist.links.page import LEFT
from teachdist.links.shm import ShmLinks
from teachdist.links.sockets import Sockets
from teachdist.links.switchboard import COLLECTIVE, INQUIRY, MAIL, NEWS, hang_up, switchboard
from teachdist.links.tcp import TcpLinks
from teachdist.links.threads import ThreadLinks
from teachdist.links.waiting import TICK
from teachdist.links.window import Window, alive

log = logging.getLogger("teachdist")


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
        self.host = this_host()
        # Called as answer(purpose, rank, socket) on the door's thread when a rank asks where this
        # one is (INQUIRY) or tells that it has failed (NEWS); whoever diagnoses sets it.
        self.answer = None
        self._door = switchboard(address_for(store))
        self._door.expect(self.secret, self._put_through)
        self._sockets = {p: Sockets(self, p) for p in (COLLECTIVE, MAIL)}
        self._sharing = shm_wanted()
        self._windows = {}
        self._pageless = set()  # ranks of this host whose page was gone before it was opened
        mine = Card(rank, self.host, os.getpid(), self._door.address, self.secret, page.place)
        self._cards = {rank: mine}
        store.set(self._key(rank), mine.dumps())

    def _key(self, rank):
        return f"card/{self.generation}/{rank}"

    def _put_through(self, generation, purpose, rank, sock, offer):
        if purpose in (INQUIRY, NEWS):
            return self.answer is not None and self.answer(purpose, rank, sock)
        sockets = self._sockets.get(purpose)
        return generation == self.generation and sockets and sockets.arrived(rank, sock, offer)

    def sockets(self, purpose):
        """This rank's connections for collectives or for mail."""
        return self._sockets[purpose]

    def known(self, peer):
        """The card of `peer` if it has been read, or can be read without waiting; else None."""
        with contextlib.suppress(PeerLost):  # for those who only would like to know
            return self.fetch(peer)
        return None

    def fetch(self, peer):
        """The same; PeerLost when the store, where it should be, does not answer."""
        if peer not in self._cards:
            try:
                if self.store.check([self._key(peer)]):
                    self._cards[peer] = Card.loads(self.store.get(self._key(peer)))
            except RuntimeError as error:  # torch's store errors
                raise PeerLost(
                    f"the store does not answer, where rank {peer} should have left its address: "
                    f"{error}",
                    peer,
                ) from error
        return self._cards.get(peer)

    def card(self, peer, patience):
        """The card of `peer`, waiting for it if it has not joined yet."""
        if peer not in self._cards:
            until_ready(lambda: self.fetch(peer), peer, patience)
        return self._cards[peer]

    def shares(self, peer):
        """Whether memory may be shared with `peer`: same host, and nobody has said no."""
        card = self._cards.get(peer)
        return card is not None and card.host == self.host and self._sharing

    def hosts(self, patience):
        """For each rank the number of its host, counted in order of rank: (0, 0, 1, 1)."""
        names = [self.card(rank, patience).host for rank in range(self.size)]
        order = list(dict.fromkeys(names))
        return tuple(order.index(name) for name in names)

    def window(self, peer):
        """The peer's page of the board, or None where this rank cannot look."""
        card = self.known(peer)
        if card is None or card.host != self.host:
            return None
        if peer not in self._windows:
            try:
                self._windows[peer] = Window(card.board)
            except FileNotFoundError:
                self._pageless.add(peer)
                return None
            except (OSError, ValueError):
                return None
        return self._windows[peer]

    def position(self, peer):
        """What the board says of `peer`, or None where this rank cannot look."""
        window = self.window(peer)
        return None if window is None else window.read()

    def offer(self, peer, patience):
        """(memory, bell): the descriptors that `peer` offers in this generation, waited for."""

        def made():
            if self.window(peer) is None:
                raise PeerLost(f"rank {self.rank} cannot open the page of rank {peer}", peer)
            generation, *offered = self.window(peer).offer()
            return offered if generation == self.generation else None

        return until_ready(made, peer, patience)

    def left(self, peer):
        """Whether `peer`, on this host, is known to have left: its page says so, or is gone."""
        position = self.position(peer)
        return peer in self._pageless if position is None else position.state == LEFT

    def abort_of(self, peer):
        """The failure with which `peer` has released the others, or None; see `Position.abort`."""
        with contextlib.suppress(PeerLost):  # without the store one can't know
            window = self.window(peer)
            return None if window is None else window.abort()
        return None

    def gone(self, peer):
        """Whether the process of `peer` is known to have ended (False where one can't know)."""
        card = self._cards.get(peer)
        return card is not None and card.host == self.host and not alive(card.pid)

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
    """All links of one rank in a group: per turn, `post` what goes out, `take` what comes in.

    Turns are aligned: what is posted in turn k is taken in turn k.
    Which kind serves a peer is settled when the first collective meets all cards.
    """

    def __init__(self, roster, page):
        self.roster = roster
        self.page = page
        self.kinds = {}  # peer -> link
        self._tcp = TcpLinks(roster.sockets(COLLECTIVE))
        self._threads = ThreadLinks(roster)
        self._shm = None
        self._parts = {}
        self._wanted = shm_wanted()

    def meet(self, patience):
        """Settle the kind of link with every peer; once, before the first turn."""
        cards = {peer: self.roster.card(peer, patience) for peer in range(self.roster.size)}
        here = {p for p, card in cards.items() if card.host == self.roster.host} - {
            self.roster.rank
        }
        local = {p for p in here if cards[p].pid == os.getpid()}
        sharing = self._share(sorted(here - local), cards, patience) if here - local else ()
        for peer in cards.keys() - {self.roster.rank}:
            self.kinds[peer] = (
                self._threads if peer in local else self._shm if peer in sharing else self._tcp
            )
        self.page.met(self.roster.generation)
        if len(set(self.kinds.values())) == 1:  # as is usual: then there is nothing to split
            link = next(iter(self.kinds.values()))
            self.post, self.take, self.release = link.post, link.take, link.release

    def _share(self, peers, cards, patience):
        """Take and offer memory; the peers with whom that worked in both directions.

        A rank without memory offers -1: its peers then use sockets with it, as it does with them.
        """
        try:
            if self._wanted:
                self._shm = ShmLinks(self.roster.rank)
        except OSError as error:
            log.warning("rank %d: no shared memory, so sockets: %s", self.roster.rank, error)
        if self._shm is None:
            self.page.offer(self.roster.generation, -1, -1)
        else:
            self.page.offer(self.roster.generation, self._shm.memory, self._shm.signals.bell)
        sharing = []
        for peer in peers:
            memory, bell = self.roster.offer(peer, patience)
            if self._shm is not None and memory >= 0:
                try:
                    self._shm.meet(peer, cards[peer].pid, memory, bell)
                except OSError as error:
                    raise PeerLost(
                        f"the memory of rank {peer} cannot be opened: {error}", peer
                    ) from error
                sharing.append(peer)
        return sharing

    @property
    def connections(self):
        """How many connections there are now."""
        return len(self.roster.sockets(COLLECTIVE).connections)

    def post(self, exchange, turn, rnd, chunks):
        """Begin to send this turn's chunks, {chunk: bytes}; they must stay as they are."""
        for link, part in self._split(rnd):
            link.post(exchange, turn, part, chunks)

    def take(self, exchange, turn, rnd, wants):
        """Wait for the turn's messages, {(peer, chunk): Want}, and until its own are out.

        What has no room of its own is answered, {(peer, chunk): tensor}, and good until `release`
        of the same turn.
        """
        arrived = {}
        for link, part in self._split(rnd):
            arrived |= link.take(exchange, turn, part, wants)
        return arrived

    def release(self, exchange, turn, rnd):
        """What `take` gave has been read."""
        for link, part in self._split(rnd):
            link.release(exchange, turn, part)

    def _split(self, rnd):
        """The round as each kind of link sees it; those that wait without a system call first."""
        parts = self._parts.get(rnd)
        if parts is None:
            parts = []
            for link in (self._threads, self._shm, self._tcp):
                sends = {p: c for p, c in rnd.sends.items() if self.kinds[p] is link}
                takes = {p: c for p, c in rnd.takes.items() if self.kinds[p] is link}
                if sends or takes:
                    parts.append((link, rnd.only(sends, takes)))
            if len(self._parts) > 4096:
                self._parts.clear()
            self._parts[rnd] = parts
        return parts

    def part(self, patience):
        """Stay until all who share memory have opened this rank's: what is in it is for them.

        A rank whose part in a call was to give may be through before another has begun.
        """
        for peer in [p for p, link in self.kinds.items() if link is self._shm]:
            with contextlib.suppress(LinkError):  # it has failed, or left, or does not come
                until_ready(lambda peer=peer: self._has_met(peer), peer, patience)

    def _has_met(self, peer):
        window = self.roster.window(peer)
        there = window is not None and not self.roster.gone(peer) and window.abort() is None
        if not there or window.read().state == LEFT:
            return True
        return True if window.met() >= self.roster.generation else None

    def close(self):
        """Leave the group's links."""
        self._threads.close()
        self._tcp.close()
        if self._shm is not None:
            self._shm.close()


def shm_wanted():
    """Whether ranks of one host are to share memory: unless TEACHDIST_SHM=0."""
    return os.environ.get("TEACHDIST_SHM") != "0"


def until_ready(ask, peer, patience):
    """What ask() answers once it is not None; asked ever more seldom. For the meeting only.

    Asked and not waited for by the store, whose client waits in C++: deaf to Ctrl-C.
    """
    pause, since = 0.0005, time.monotonic()
    while (answer := ask()) is None:
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)
        if time.monotonic() - since > TICK:
            patience.over([peer])
            since = time.monotonic()
    return answer


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
