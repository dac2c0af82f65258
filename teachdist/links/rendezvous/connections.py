"""This rank's connections with its peers, made when first needed.

Of each pair the higher rank dials, when either first needs the other. Nobody waits for a
connection that nobody makes, and no pair ends up with two.

    rank 2 (needs 0)            rank 0
      dial ---- hello ------->  listener's thread: the secret fits, so
                                into the list of arrivals, and ring the bell
      send ---- ... --------->  main thread, when it next waits: adopt

A job has two kinds, *collectives* and *messages* (point to point), because messages must not queue
behind collectives. A connection for messages between ranks of one host comes with shared memory
(`transport/ring_buffer.py`).
"""

import contextlib
import logging
import os
import select
import socket
from collections import deque

from teachdist.links.errors import PeerLost
from teachdist.links.rendezvous.listener import P2P, Unreachable, dial
from teachdist.links.transport import ring_buffer
from teachdist.links.transport.channel import Channel
from teachdist.links.waiting import wait_for

log = logging.getLogger("teachdist")


class Sockets:
    """This rank's connections for one purpose (collectives, or messages) in one generation."""

    def __init__(self, peers, purpose):
        self.peers = peers
        self.purpose = purpose
        self.connections = {}
        self._arrivals = deque()
        self.bell, self._ring = socket.socketpair()
        self.bell.setblocking(False)
        self._ring.setblocking(False)
        self.closed = False

    def arrived(self, rank, sock, offer):
        """Called by the listener's thread with a connection that `rank` made."""
        if self.closed or not self.peers.rank < rank < self.peers.size:
            return False
        sock.setblocking(False)
        if self.purpose == P2P:
            channel = ring_buffer.answer(sock, *(offer or (0, -1)))
        else:
            channel = Channel(sock)
        self._arrivals.append((rank, channel))
        self.ring()
        return True

    def ring(self):
        """Wake whoever polls `bell`."""
        with contextlib.suppress(BlockingIOError, OSError):
            self._ring.send(b"x")

    def adopt(self):
        """Take in the connections that have arrived."""
        with contextlib.suppress(BlockingIOError):
            self.bell.recv(4096)
        while self._arrivals:
            rank, channel = self._arrivals.popleft()
            old = self.connections.pop(rank, None)
            if old is not None:
                old.close()
            self.connections[rank] = channel

    def connection(self, peer, deadline):
        """The connection with `peer`, dialled now if that is up to this rank; else maybe None."""
        channel = self.connections.get(peer)
        if channel is None and peer < self.peers.rank:
            card = self.peers.card(peer, deadline)
            try:
                channel = self._dial(card, deadline)
            except (Unreachable, OSError) as error:
                raise PeerLost(f"rank {peer} cannot be reached: {error}", peer) from error
            self.connections[peer] = channel
        return channel

    def _dial(self, card, deadline):
        peers = self.peers
        place = (card.address, card.secret, peers.generation, self.purpose, peers.rank)

        def there(sock, event):  # a stopped process still accepts, but does not answer
            wait_for(sock, event, deadline, card.rank)

        if self.purpose != P2P:
            return Channel(dial(*place, wait=there))
        memory = None
        if peers.shares(card.rank):
            try:
                memory = ring_buffer.offer()
            except OSError as error:
                log.warning("rank %d: no memory to share, so sockets: %s", peers.rank, error)
        try:
            sock = dial(*place, wait=there, memory=-1 if memory is None else memory)
            there(sock, select.POLLIN)
            return ring_buffer.answered(sock, memory)
        finally:
            if memory is not None:
                os.close(memory)

    def abandon(self):
        """Close this process's copies only, in a forked child; the parent's connections live on."""
        self.closed = True
        for end in (*self.connections.values(), self.bell, self._ring):
            end.close()

    def close(self):
        """Hang up on everybody: peers that still wait for this rank are told by the system."""
        if self.closed:
            return
        self.closed = True
        self.adopt()
        for channel in self.connections.values():
            channel.close()
        self.connections.clear()
        self.bell.close()
        self._ring.close()
