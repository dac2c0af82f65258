"""The cards of a group: how its ranks learn where the others are.

When a group is made, each rank leaves a *card* in the store: its host, its process, the address
of its listener, a secret that a caller must know, and where its page of the board is. Cards
are read when first needed; making a group costs each rank one message to the store and waits
for nobody.

    rank 0: set card/0/0        rank 1: set card/0/1        ...
    rank 1, when it first needs rank 0: get card/0/0, then dial or look at its page
"""

import contextlib
import json
import os
import secrets
import time
from dataclasses import dataclass

from teachdist.environment import switch
from teachdist.links.board.layout import LEFT
from teachdist.links.board.reader import BoardReader, alive
from teachdist.links.errors import PeerLost
from teachdist.links.rendezvous.address import address_for, this_host
from teachdist.links.rendezvous.connections import Sockets
from teachdist.links.rendezvous.listener import COLLECTIVE, INQUIRY, NEWS, P2P, hang_up, listener
from teachdist.links.waiting import TICK


@dataclass(frozen=True)
class Card:
    """What a rank tells the others about itself."""

    rank: int
    host: str
    pid: int
    address: tuple
    secret: bytes
    board: str
    size: int = 0
    launch: str = ""  # what a launcher calls this run, see `backend/group/launch.py`

    def dumps(self):
        """Itself in bytes, for the store."""
        return json.dumps({**self.__dict__, "secret": self.secret.hex()}).encode()

    @classmethod
    def loads(cls, data):
        """From the store's bytes."""
        fields = json.loads(data)
        fields["secret"] = bytes.fromhex(fields["secret"])
        fields["address"] = tuple(fields["address"])
        return cls(**fields)


class Peers:
    """The cards of one group in one generation; publishes this rank's own when made."""

    def __init__(self, store, rank, size, generation, page, launch=""):
        self.store = store
        self.rank = rank
        self.size = size
        self.generation = generation
        self.secret = secrets.token_bytes(16)
        self.host = this_host()
        # Called as answer(purpose, rank, socket) on the listener's thread when a rank asks where
        # this one is (INQUIRY) or tells that it has failed (NEWS); whoever diagnoses sets it.
        self.answer = None
        self._listener = listener(address_for(store))
        self._listener.expect(self.secret, self._put_through)
        self._sockets = {p: Sockets(self, p) for p in (COLLECTIVE, P2P)}
        self._sharing = shm_wanted()
        self._board_readers = {}
        self._pageless = set()  # ranks of this host whose page was gone before it was opened
        place = self._listener.address, self.secret, page.place
        mine = Card(rank, self.host, os.getpid(), *place, size, launch)
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
        """This rank's connections for collectives or for messages."""
        return self._sockets[purpose]

    def known(self, peer):
        """The card of `peer` if it has been read, or can be read without waiting; else None."""
        with contextlib.suppress(PeerLost):  # for those who only would like to know
            return self.fetch(peer)
        return None

    def fetch(self, peer):
        """The card of `peer` if it is there, else None; PeerLost if the store does not answer."""
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

    def card(self, peer, deadline):
        """The card of `peer`, waiting for it if it has not joined yet."""
        if peer not in self._cards:
            until_ready(lambda: self.fetch(peer), peer, deadline)
        return self._cards[peer]

    def shares(self, peer):
        """Whether memory may be shared with `peer`: same host, and nobody has said no."""
        card = self._cards.get(peer)
        return card is not None and card.host == self.host and self._sharing

    def hosts(self, deadline):
        """For each rank the number of its host, counted in order of rank: (0, 0, 1, 1)."""
        names = [self.card(rank, deadline).host for rank in range(self.size)]
        order = list(dict.fromkeys(names))
        return tuple(order.index(name) for name in names)

    def reader(self, peer):
        """The peer's page of the board, or None where this rank cannot look."""
        card = self.known(peer)
        if card is None or card.host != self.host:
            return None
        if peer not in self._board_readers:
            try:
                self._board_readers[peer] = BoardReader(card.board)
            except FileNotFoundError:
                self._pageless.add(peer)
                return None
            except (OSError, ValueError):
                return None
        return self._board_readers[peer]

    def position(self, peer):
        """What the board says of `peer`, or None where this rank cannot look."""
        reader = self.reader(peer)
        return None if reader is None else reader.read()

    def offer(self, peer, deadline):
        """(memory, bell): the descriptors that `peer` offers in this generation, waited for."""

        def made():
            if self.reader(peer) is None:
                raise PeerLost(f"rank {self.rank} cannot open the page of rank {peer}", peer)
            generation, *offered = self.reader(peer).offer()
            return offered if generation == self.generation else None

        return until_ready(made, peer, deadline)

    def left(self, peer):
        """Whether `peer`, on this host, is known to have left: its page says so, or is gone."""
        position = self.position(peer)
        return peer in self._pageless if position is None else position.state == LEFT

    def abort_of(self, peer):
        """The failure with which `peer` has released the others, or None; see `Position.abort`."""
        with contextlib.suppress(PeerLost):  # without the store one can't know
            reader = self.reader(peer)
            return None if reader is None else reader.abort()
        return None

    def gone(self, peer):
        """Whether the process of `peer` is known to have ended (False where one can't know)."""
        card = self._cards.get(peer)
        return card is not None and card.host == self.host and not alive(card.pid)

    def watch_all(self, deadline):
        """Open every page of the board on this host, so that they outlive their owners."""
        for peer in range(self.size):
            self.card(peer, deadline)
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
        for reader in self._board_readers.values():
            reader.close()
        self._board_readers.clear()


def shm_wanted():
    """Whether ranks of one host are to share memory: unless TEACHDIST_SHM=0."""
    return switch("TEACHDIST_SHM", True)


def until_ready(ask, peer, deadline):
    """What ask() answers once it is not None; asked ever more seldom. For the meeting only.

    Asked and not waited for by the store, whose client waits in C++: deaf to Ctrl-C.
    """
    pause, since = 0.0005, time.monotonic()
    while (answer := ask()) is None:
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)
        if time.monotonic() - since > TICK:
            deadline.over([peer])
            since = time.monotonic()
    return answer
