"""Which kind of link serves whom.

From the cards of a group (`rendezvous/peers.py`) follows, equally on all ranks, which ranks share a
host, and for each peer the kind of link:

    same process -> threads.py     same host -> shm.py     otherwise -> tcp.py

Ranks of one host settle it when the first collective brings them together: each takes memory and
says on its page of the board where it is, or that it has none. A rank without memory uses sockets
with all others, as they do with it.
"""

import contextlib
import logging
import os
from dataclasses import replace

from teachdist.links.board.layout import LEFT
from teachdist.links.collective.exchange import Step
from teachdist.links.collective.shm import ShmLinks
from teachdist.links.collective.tcp import TcpLinks
from teachdist.links.collective.threads import ThreadLinks
from teachdist.links.errors import LinkError, PeerLost
from teachdist.links.rendezvous.listener import COLLECTIVE
from teachdist.links.rendezvous.peers import shm_wanted, until_ready

log = logging.getLogger("teachdist")


class Links:
    """All links of one rank in a group: per step, `post` what goes out, `take` what comes in.

    Turns are aligned: what is posted in turn k is taken in turn k.
    Which kind serves a peer is settled when the first collective meets all cards.
    """

    def __init__(self, peers, page):
        self.peers = peers
        self.page = page
        self.kinds = {}  # peer -> link
        self._tcp = TcpLinks(peers.sockets(COLLECTIVE))
        self._threads = ThreadLinks(peers)
        self._shm = None
        self._wanted = shm_wanted()

    def meet(self, deadline, memory=True):
        """Settle the kind of link with every peer; once, before the first turn.

        memory: whether the group shares memory at all, the same on all ranks.
        """
        self._wanted = self._wanted and memory
        cards = {peer: self.peers.card(peer, deadline) for peer in range(self.peers.size)}
        here = {p for p, card in cards.items() if card.host == self.peers.host} - {self.peers.rank}
        local = {p for p in here if cards[p].pid == os.getpid()}
        sharing = self._share(sorted(here - local), cards, deadline) if here - local else ()
        for peer in cards.keys() - {self.peers.rank}:
            self.kinds[peer] = (
                self._threads if peer in local else self._shm if peer in sharing else self._tcp
            )
        self.page.met(self.peers.generation)
        if len(set(self.kinds.values())) == 1:  # as is usual: then there is nothing to split
            link = next(iter(self.kinds.values()))
            self.post, self.take, self.release = link.post, link.take, link.release

    def _share(self, peers, cards, deadline):
        """Take and offer memory; the peers with whom that worked in both directions.

        A rank without memory offers -1: its peers then use sockets with it, as it does with them.
        """
        try:
            if self._wanted:
                self._shm = ShmLinks(self.peers.rank)
        except OSError as error:
            log.warning("rank %d: no shared memory, so sockets: %s", self.peers.rank, error)
        if self._shm is None:
            self.page.offer(self.peers.generation, -1, -1)
        else:
            self.page.offer(self.peers.generation, self._shm.memory, self._shm.signals.bell)
        sharing = []
        for peer in peers:
            memory, bell = self.peers.offer(peer, deadline)
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
        return len(self.peers.sockets(COLLECTIVE).connections)

    def post(self, exchange, step):
        """Begin to send what leaves in this step; it must stay as it is until `take` returns."""
        for link, part in self._split(step):
            link.post(exchange, part)

    def take(self, exchange, step):
        """Wait for the step's messages, and until its own are out.

        What has no room of its own is answered, {(peer, chunk): tensor}, and good until `release`
        of the same step.
        """
        arrived = {}
        for link, part in self._split(step):
            arrived |= link.take(exchange, part)
        return arrived

    def release(self, exchange, step):
        """What `take` gave has been read."""
        for link, part in self._split(step):
            link.release(exchange, part)

    def _split(self, step):
        """The step as each kind of link sees it; those that wait without a system call first."""
        if step.known is None:
            turn, rnd, step.known = step.turn, step.turn.rnd, []
            for link in (self._threads, self._shm, self._tcp):
                sends = {p: c for p, c in rnd.sends.items() if self.kinds[p] is link}
                takes = {p: c for p, c in rnd.takes.items() if self.kinds[p] is link}
                if sends or takes:
                    part = replace(turn, rnd=rnd.only(sends, takes))
                    step.known.append((link, Step(part, step.leaving, step.wants)))
        return step.known

    def part(self, deadline):
        """Stay until all who share memory have opened this rank's: what is in it is for them.

        A rank whose part in a call was to give may be through before another has begun.
        """
        for peer in [p for p, link in self.kinds.items() if link is self._shm]:
            with contextlib.suppress(LinkError):  # it has failed, or left, or does not come
                until_ready(lambda peer=peer: self._has_met(peer), peer, deadline)

    def _has_met(self, peer):
        reader = self.peers.reader(peer)
        there = reader is not None and not self.peers.gone(peer) and reader.abort() is None
        if not there or reader.read().state == LEFT:
            return True
        return True if reader.met() >= self.peers.generation else None

    def close(self):
        """Leave the group's links."""
        self._threads.close()
        self._tcp.close()
        if self._shm is not None:
            self._shm.close()
