"""Links over sockets: between hosts, and wherever nothing faster is at hand.

One connection per pair of ranks (`rendezvous/connections.py`), both directions at once. What keeps
it free of
deadlock: a turn sends and receives *at the same time*. If all ranks of a ring sent first and
received afterwards, large messages would fill every buffer of the system, and all would wait for
ever.

    rank 0  ==== 8 MB ====>  rank 1  ==== 8 MB ====>  rank 2  ==== 8 MB ====>  rank 0
            full: waits              full: waits              full: waits

So each message is a small state machine (a generator that yields when its socket has nothing more
to give), what goes out queues until the socket takes it, and one `poll` drives all of them.

Cost: one system call per message and direction when it fits the socket's buffer, and one
`poll` per round that has to wait.
"""

import select
import struct

from teachdist.links.errors import Mismatch, ProtocolError
from teachdist.links.transport.channel import guarded
from teachdist.links.transport.header import MAX_WORDS, SIZE, Header
from teachdist.links.transport.raw import scratch, view_bytes
from teachdist.spinning import spin


class TcpLinks:
    """The links of one rank to its peers over sockets, as the executor uses them."""

    def __init__(self, sockets):
        self.sockets = sockets
        self._unsent = {}  # peer -> messages that wait for a connection
        self._poll = select.poll()
        self._polled = {}  # what poll watches: descriptor -> events
        self._rooms = Rooms()

    def post(self, exchange, step):
        """Begin to send what leaves in this step.

        It must stay as it is until `take` of the same step returns.
        """
        turn = step.turn
        if exchange.told is None:
            exchange.told = set()
        for peer, numbers in turn.rnd.sends.items():
            words = b""
            if peer not in exchange.told:
                exchange.told.add(peer)
                words = exchange.words.encode()[:MAX_WORDS]
            views = [step.leaving[chunk] for chunk in numbers]
            head = exchange.header.message(
                turn.round, turn.segment, words, [len(view) for view in views]
            )
            message = (turn.number, [memoryview(head), *(v for v in views if len(v))])
            channel = self.sockets.connection(peer, exchange.deadline)
            if channel is None:
                self._unsent.setdefault(peer, []).append(message)
                continue
            channel.queue.append(message)
            with guarded(peer):
                channel.flush()

    def take(self, exchange, step):
        """Wait for the step's messages, and until its own are out.

        What has no room of its own is answered, {(peer, chunk): tensor}.
        """
        receivers, step.known = {}, {}
        turn, deadline, rooms = step.turn, exchange.deadline, self._rooms
        waiting = dict(turn.rnd.takes)
        while True:
            for peer in list(waiting):
                channel = self.sockets.connection(peer, deadline)
                if channel is not None:
                    chunks = waiting.pop(peer)
                    receivers[peer] = receiving(channel, peer, exchange, step, chunks, rooms)
            for peer in list(receivers):
                with guarded(peer):
                    for _ in receivers[peer]:
                        break
                    else:
                        del receivers[peer]
            sending = self._flush(turn.number, deadline)
            if not (waiting or receivers or sending):
                return step.known
            if not self._sleep(waiting, receivers, sending, deadline):
                self._look_at(sending - receivers.keys(), exchange)
                deadline.over(waiting.keys() | receivers.keys() | sending)

    def release(self, exchange, step):
        """What `take` gave has been read; a step that is kept must not hold on to it."""
        for tensor in step.known.values():
            self._rooms.give_back(tensor)
        step.known = None

    def _flush(self, number, deadline):
        """Send on; the peers whom something of turn `number` or before has yet to reach."""
        for peer in list(self._unsent):
            channel = self.sockets.connection(peer, deadline)
            if channel is not None:
                channel.queue.extend(self._unsent.pop(peer))
        late = {p for p, messages in self._unsent.items() if messages[0][0] <= number}
        for peer, channel in self.sockets.connections.items():
            if channel.queue:
                with guarded(peer):
                    channel.flush()
                if channel.queue and channel.queue[0][0] <= number:
                    late.add(peer)
        return late

    def _sleep(self, waiting, receivers, sending, deadline):
        watched = {self.sockets.bell.fileno(): select.POLLIN}
        for peer, channel in self.sockets.connections.items():
            events = select.POLLIN * (peer in receivers) | select.POLLOUT * bool(channel.queue)
            if events:
                watched[channel.fileno()] = events
        for fd in self._polled.keys() - watched.keys():
            self._poll.unregister(fd)
        for fd in [fd for fd, events in watched.items() if self._polled.get(fd) != events]:
            self._poll.register(fd, watched[fd])
        self._polled = watched
        if not sending:  # else there is time: others copy what this rank waits to be rid of
            spin(lambda: self._poll.poll(0))
        ready = self._poll.poll(deadline.tick() * 1000)
        if any(fd == self.sockets.bell.fileno() for fd, _ in ready):
            self.sockets.adopt()
        return ready

    def _look_at(self, peers, exchange):
        """Nothing moves: have these peers, to whom this rank only sends, sent something else?

        Two ranks that both give more than the system holds would else wait for each other's room.
        """
        for peer in peers & self.sockets.connections.keys():
            channel = self.sockets.connections[peer]
            with guarded(peer):
                head = channel.ahead(SIZE)
                if head is None:
                    continue
                header = Header.unpack(head)
                words = (channel.ahead(SIZE + header.words) or head)[SIZE:]
            if header.sequence <= exchange.header.sequence:
                check_call(header, exchange.header, peer, words.decode(errors="replace"))

    def close(self):
        """Hang up."""
        self.sockets.close()


class Rooms:
    """Room for what comes in and has no place of its own, used again and again.

    Fresh memory costs more than the copy into it: the system clears every page of it first.
    """

    MOST = 16  # kept for one kind of chunk, and kinds
    MOST_BYTES = 1 << 26  # kept in all

    def __init__(self):
        self._free = {}  # (elements, dtype) -> tensors
        self._bytes = 0  # of them all

    def take(self, numel, dtype):
        """A flat tensor; what is in it is of no use."""
        free = self._free.get((numel, dtype))
        if not free:
            return scratch(numel, dtype)
        tensor = free.pop()
        self._bytes -= tensor.nbytes
        return tensor

    def give_back(self, tensor):
        """It may be overwritten from now on."""
        if len(self._free) > self.MOST or self._bytes > self.MOST_BYTES:
            self._free.clear()
            self._bytes = 0
        free = self._free.setdefault((tensor.numel(), tensor.dtype), [])
        if len(free) < self.MOST:
            free.append(tensor)
            self._bytes += tensor.nbytes


def receiving(channel, peer, exchange, step, chunks, rooms):
    """Receive one turn's message from `peer` (a generator).

    What has no room of its own gets one, and is noted in `step.known`.
    """
    turn = step.turn
    head = bytearray(SIZE)
    yield from channel.fill(memoryview(head))
    header = Header.unpack(head)
    words = bytearray(header.words)
    yield from channel.fill(memoryview(words))
    check_place(header, exchange, turn, peer, words.decode(errors="replace"))
    if header.chunks != len(chunks):
        raise Mismatch(f"rank {peer} sent {header.chunks} chunks, {len(chunks)} were due", peer)
    table = bytearray(8 * header.chunks)
    yield from channel.fill(memoryview(table))
    lengths = struct.unpack(f"<{header.chunks}Q", table)
    for chunk, length in zip(chunks, lengths, strict=True):
        want = step.wants[peer, chunk]
        check_length(want, length, peer)
        room = want.room
        if room is None:
            step.known[peer, chunk] = tensor = rooms.take(want.numel, want.dtype)
            room = view_bytes(tensor)
        yield from channel.fill(room)


def check_place(header, exchange, turn, peer, words):
    """Raise Mismatch unless the message is of the call and the turn that this rank is in."""
    expected = exchange.header
    same_turn = (header.round, header.segment) == (turn.round, turn.segment)
    check_call(header, expected, peer, words, same_turn)


def check_call(header, expected, peer, words, same_turn=True):
    """Raise Mismatch unless the message is of the call whose header is `expected`."""
    if header.group != expected.group or header.generation != expected.generation:
        raise ProtocolError(f"rank {peer} sent a message of another group or generation", peer)
    same_call = (header.sequence, header.kind, header.fingerprint) == (
        expected.sequence,
        expected.kind,
        expected.fingerprint,
    )
    if not (same_call and same_turn):
        raise Mismatch(
            f"rank {peer} is in another call: call {header.sequence}, round {header.round}",
            peer,
            words,
            header.sequence if header.sequence < expected.sequence else None,
        )


def check_length(want, length, peer):
    """Raise Mismatch unless a chunk has as many bytes as this rank wants."""
    if length != want.nbytes:
        raise Mismatch(
            f"rank {peer} sent {length} bytes where this rank expects {want.nbytes}", peer
        )
