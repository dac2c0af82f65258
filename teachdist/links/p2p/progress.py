"""The progress engine of messages: from their queues to the connections and back.

    posted sends ---> queue of a connection ---> system or ring           (`push`)
    receives     <--- matching <--- a reader per connection, a generator      (`read`)

A reader takes in one message after the other, for ever. It yields when nothing more is there, so
all connections can be looked after in turn, and it goes on where it was. A message whose receive
is posted goes straight to its place; any other waits in memory (`matching.py`).

The engine waits for nobody, but in `sleep`. Who may call it, and when, is up to `messages.py`: one
at a time, holding the lock; only `stirs` and `sleep` are called without it.
"""

import select
from collections import deque

from teachdist.links.errors import LinkError
from teachdist.links.p2p.matching import Arrived, Matching, misfit
from teachdist.links.transport.channel import BROKEN, broken
from teachdist.links.transport.header import GOODBYE, SIZE, Header
from teachdist.spinning import spin


class Progress:
    """All that moves between one rank's requests and its connections.

    settled: (request, error) of operations that are over and whose owners are to be told.
    moved: whether the last `advance` brought a message. lock: held by who calls.
    """

    def __init__(self, peers, sockets, lock):
        self.peers = peers
        self.sockets = sockets
        self.matching = Matching()
        self.settled = self.matching.settled
        self.moved = False
        self._lock = lock
        self._unsent = {}  # peer -> messages that wait for a connection
        self._readers = {}
        self._filling = {}  # peer -> receive into which a message is being read
        self._poll = select.poll()
        self._polled = {}

    def put(self, peer, head, body):
        """Send a small message now if there is room for all of it; whether there was."""
        channel = self.sockets.connections.get(peer)
        try:
            return not channel.queue and channel.put(head, body)
        except BROKEN:
            return False  # whoever reads or waits next will see

    def post(self, request, head):
        """Begin to send a request: `head` (header, words, length), then its buffer."""
        if request.peer == self.peers.rank:
            header = Header.unpack(head[:SIZE])
            said = head[SIZE : SIZE + header.words]
            self.matching.take(Arrived(request.peer, header, said, bytes(request.buffer)))
            self.settled.append((request, None))
            return
        head = memoryview(head)
        item = (request, [head, request.buffer] if len(request.buffer) else [head])
        channel = self.sockets.connections.get(request.peer)
        if channel is None:
            self._unsent.setdefault(request.peer, deque()).append(item)
        else:
            channel.queue.append(item)
            self._push(request.peer, channel)

    def pending(self):
        """The operations that are not done."""
        queues = [channel.queue for channel in self.sockets.connections.values()]
        queues += self._unsent.values()
        sends = [request for queue in queues for request, _ in queue if request is not None]
        return [*sends, *self.matching.receives, *self._filling.values()]

    # -- moving ----------------------------------------------------------------------------

    def advance(self, deadline):
        """Move what can be moved now, on all connections; dial those that are needed."""
        self.moved = False
        sources = {request.peer for request in self.matching.receives}
        if None in sources:
            sources = set(range(self.peers.size))
        connections = self.sockets.connections
        for peer in (sources | self._unsent.keys()) - connections.keys():
            if peer < self.peers.rank:
                self._connect(peer, deadline)
        for peer in self._unsent.keys() & connections.keys():
            connections[peer].queue.extend(self._unsent.pop(peer))
        for peer, channel in list(connections.items()):
            if channel.queue:
                self._push(peer, channel)
            self.read(peer)

    def _connect(self, peer, deadline):
        try:
            if self.peers.fetch(peer) is not None:
                self.sockets.connection(peer, deadline)
        except LinkError as error:
            self._lost(peer, error)

    def _push(self, peer, channel):
        try:
            for request in channel.flush():
                if request is not None:
                    self.settled.append((request, None))
        except BROKEN as error:
            self._lost(peer, broken(peer, error))

    def read(self, peer):
        """Read until a message is complete or nothing more is there."""
        reader = self._readers.get(peer)
        if reader is None:
            reader = self._readers[peer] = self._reading(peer)
        try:
            self.moved = next(reader) or self.moved
        except BROKEN as error:
            self._lost(peer, broken(peer, error))

    def _reading(self, peer):
        """Take in messages from `peer` for ever.

        A generator that yields when there is nothing, and after each message: True, there may be
        more.
        """
        channel = self.sockets.connections[peer]
        while True:
            while channel.can_stir and not channel.stirred():
                yield
            head = channel.take(SIZE) or bytes((yield from channel.gather(SIZE)))
            header = Header.read(head)
            if header.kind == GOODBYE:
                raise EOFError
            words, length = header.words, header.words + 8 * header.chunks
            rest = channel.take(length) or (yield from channel.gather(length))
            message = Arrived(peer, header, rest[:words], None)
            request = self.matching.claim(message)
            wrong = None if request is None else misfit(request, message)
            if request is not None and wrong is None:
                if not channel.land(request.buffer):
                    self._filling[peer] = request
                    yield from channel.fill(request.buffer)
                    del self._filling[peer]
                self.settled.append((request, None))
                yield True
                continue
            if wrong is not None:
                self.settled.append((request, wrong))
            message.data = yield from channel.gather(header.length)
            if wrong is None:
                self.matching.take(message)
            yield True

    # -- waiting ---------------------------------------------------------------------------

    def comes(self, peer):
        """For a moment look, yielding, whether something comes from `peer` by itself."""
        channel = self.sockets.connections.get(peer)
        if channel is None or not channel.can_stir:
            return False
        return channel.stirred() or spin(channel.stirred)

    def stirs(self):
        """For a moment look, yielding, whether anything comes from anybody by itself."""
        channels = list(self.sockets.connections.values())
        if not any(channel.can_stir for channel in channels):
            return False
        return spin(lambda: any(channel.stirred() for channel in channels))

    def sleep(self, deadline):
        """Block until a connection or the bell rings; False if nothing did within a tick."""
        channels = list(self.sockets.connections.values())
        bell = self.sockets.bell.fileno()
        watched = {bell: select.POLLIN} | {ch.fileno(): ch.events for ch in channels}
        for fd in self._polled.keys() - watched.keys():
            self._poll.unregister(fd)
        for fd in [fd for fd, events in watched.items() if self._polled.get(fd) != events]:
            self._poll.register(fd, watched[fd])
        self._polled = watched
        awake = [channel for channel in channels if not channel.drowse()]
        if not (awake or any(channel.can_stir or channel.queue for channel in channels)):
            spin(lambda: self._poll.poll(0))
        ready = self._poll.poll(0 if awake else deadline.tick() * 1000)
        ready = {fd for fd, _ in ready}
        for channel in channels:
            channel.woken(channel.fileno() in ready)
        if bell in ready:
            with self._lock:
                self.sockets.adopt()
        return bool(ready or awake)

    # -- ends ------------------------------------------------------------------------------

    def _lost(self, peer, error):
        """The connection with `peer` is gone: fail what depends on it, keep the rest."""
        channel = self.sockets.connections.pop(peer, None)
        self._readers.pop(peer, None)
        doomed = [request for request, _ in self._unsent.pop(peer, ())]
        if channel is not None:
            doomed += [request for request, _ in channel.queue if request is not None]
            channel.close()
        if peer in self._filling:
            doomed.append(self._filling.pop(peer))
        doomed += [request for request in self.matching.receives if request.peer == peer]
        self.matching.receives = [
            request for request in self.matching.receives if request.peer != peer
        ]
        self.settled += [(request, error) for request in doomed]

    def withdraw(self, request, error):
        """End an operation that nobody waits for any more."""
        if request in self.matching.receives:
            self.matching.receives.remove(request)
        for peer, channel in self.sockets.connections.items():
            begun = self._filling.get(peer) is request
            for item in [item for item in channel.queue if item[0] is request]:
                begun = item is channel.queue[0] and item[1][-1] is not request.buffer
                channel.queue.remove(item)
            if begun:
                # Half a message: nothing sensible can follow on this connection.
                channel.cut()
        if not request.done:
            self.settled.append((request, error))

    def end(self, reason):
        """End every open operation with what `reason(request)` says, and hang up."""
        self.settled += [(request, reason(request)) for request in self.pending()]
        self.matching.receives.clear()
        self._filling.clear()
        self._readers.clear()
        self.sockets.close()
