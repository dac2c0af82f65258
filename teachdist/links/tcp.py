"""Links over sockets: between hosts, and wherever nothing faster is at hand.

One connection per pair of ranks, both directions at once. Two rules keep it free of deadlock:

- Of each pair the higher rank dials, when either first needs the other. Nobody waits for a
  connection that nobody makes, and no pair ends up with two.
- A round sends and receives *at the same time*. If all ranks of a ring sent first and received
  afterwards, large messages would fill every buffer of the system and all would wait for ever;
  so each message is a small state machine (a generator that yields when its socket has
  nothing more to give or to take), and one `poll` drives all of them.

Cost: one system call per message and direction when it fits the socket's buffer, and one
`poll` per round that has to wait.
"""

import contextlib
import select
import socket
from collections import deque

from teachdist.links.errors import LinkError, Mismatch, PeerLost, Stranger
from teachdist.links.header import SIZE, Header
from teachdist.links.switchboard import dial

MAX_PIECES = 64  # buffers per sendmsg; the system's limit is 1024
PIECE = 1 << 20


class Sockets:
    """This rank's connections for one purpose (collectives, or mail) in one generation."""

    def __init__(self, roster, purpose):
        self.roster = roster
        self.purpose = purpose
        self.connections = {}
        self._arrivals = deque()
        self.bell, self._ring = socket.socketpair()
        self.bell.setblocking(False)
        self._ring.setblocking(False)
        self.closed = False

    def arrived(self, rank, sock):
        """Called by the switchboard's thread with a connection that `rank` made."""
        if self.closed or not self.roster.rank < rank < self.roster.size:
            return False
        sock.setblocking(False)
        self._arrivals.append((rank, sock))
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
            rank, sock = self._arrivals.popleft()
            old = self.connections.pop(rank, None)
            if old is not None:
                old.close()
            self.connections[rank] = sock

    def connection(self, peer, patience):
        """The connection with `peer`, dialled now if that is up to this rank; else maybe None."""
        sock = self.connections.get(peer)
        if sock is None and peer < self.roster.rank:
            card = self.roster.card(peer, patience)
            try:
                sock = dial(
                    card.address,
                    card.secret,
                    self.roster.generation,
                    self.purpose,
                    self.roster.rank,
                    max(0.1, patience.timeout - patience.waited),
                )
            except LinkError as error:
                raise PeerLost(f"rank {peer} cannot be reached: {error}", peer) from error
            self.connections[peer] = sock
        return sock

    def abandon(self):
        """Close this process's copies only, in a forked child; the parent's connections live on."""
        self.closed = True
        for sock in (*self.connections.values(), self.bell, self._ring):
            sock.close()

    def close(self):
        """Hang up on everybody: peers that still wait for this rank are told by the system."""
        if self.closed:
            return
        self.closed = True
        self.adopt()
        for sock in self.connections.values():
            sock.close()
        self.connections.clear()
        self.bell.close()
        self._ring.close()


class TcpLinks:
    """The links of one rank to its peers over sockets, as an executor uses them."""

    def __init__(self, sockets):
        self.sockets = sockets
        self._outgoing = {}  # peer -> deque of senders

    def post(self, header, words, outgoing, patience):
        """Begin to send: outgoing[peer] is (chunks, with_words).

        Chunks must stay as they are until `take` of the same round returns.
        """
        for peer, (chunks, with_words) in outgoing.items():
            said = words if with_words else b""
            sizes = b"".join(len(c).to_bytes(8, "little") for c in chunks)
            length = sum(map(len, chunks))
            head = header.sized(len(said), len(chunks), length).pack() + said + sizes
            self._outgoing.setdefault(peer, deque()).append([memoryview(head), *chunks])
        self._advance(patience)

    def take(self, header, incoming, patience):
        """Wait for the round's messages, and until what was posted is out.

        incoming[peer] lists one (length or None, buffer or None) per chunk; the answer has the
        chunks' bytes in the same places. Without a buffer one is made.
        """
        results, receivers = {}, {}
        waiting = dict(incoming)
        while True:
            for peer in [p for p in waiting if self.sockets.connection(p, patience)]:
                receivers[peer] = receiving(
                    self.sockets.connections[peer], peer, header, waiting.pop(peer)
                )
            for peer in list(receivers):
                with guarded(peer):
                    try:
                        next(receivers[peer])
                    except StopIteration as done:
                        results[peer] = done.value
                        del receivers[peer]
            self._advance(patience)
            if not (waiting or receivers or self._outgoing):
                return results
            self._sleep(waiting, receivers, patience)

    def _advance(self, patience):
        for peer in list(self._outgoing):
            sock = self.sockets.connection(peer, patience)
            queue = self._outgoing[peer]
            with guarded(peer):
                while sock is not None and queue and send_some(sock, queue[0]):
                    queue.popleft()
            if not queue:
                del self._outgoing[peer]

    def _sleep(self, waiting, receivers, patience):
        poll = select.poll()
        connections = self.sockets.connections
        poll.register(self.sockets.bell, select.POLLIN)
        for peer in receivers.keys() | (self._outgoing.keys() & connections.keys()):
            events = select.POLLIN * (peer in receivers)
            events |= select.POLLOUT * (peer in self._outgoing)
            poll.register(connections[peer], events)
        if not poll.poll(patience.tick() * 1000):
            patience.over(waiting.keys() | receivers.keys() | self._outgoing.keys())
        self.sockets.adopt()

    def close(self):
        """Hang up."""
        self.sockets.close()


@contextlib.contextmanager
def guarded(peer):
    """Say of a system's error on a connection which rank it means."""
    try:
        yield
    except EOFError:
        raise PeerLost(f"rank {peer} closed its connection", peer) from None
    except ValueError as error:
        raise Stranger(f"the connection with rank {peer} brought {error}", peer) from error
    except OSError as error:
        raise PeerLost(f"the connection with rank {peer} broke: {error}", peer) from error


def send_some(sock, buffers):
    """Send what the system takes now; True when all of it is out."""
    while buffers:
        try:
            sent = sock.sendmsg(buffers[:MAX_PIECES])
        except BlockingIOError:
            return False
        while buffers and sent >= len(buffers[0]):
            sent -= len(buffers.pop(0))
        if sent:
            buffers[0] = buffers[0][sent:]
    return True


def fill(sock, view):
    """Receive until `view` is full; yields whenever nothing is there."""
    while view:
        try:
            count = sock.recv_into(view[:PIECE])
        except BlockingIOError:
            yield
            continue
        if count == 0:
            raise EOFError
        view = view[count:]


def receiving(sock, peer, expected, wants):
    """Receive one message of the collective that `expected` describes (a generator)."""
    head = bytearray(SIZE)
    yield from fill(sock, memoryview(head))
    header = Header.unpack(head)
    words = bytearray(header.words)
    yield from fill(sock, memoryview(words))
    check_place(header, expected, peer, words.decode(errors="replace"))
    table = bytearray(8 * header.chunks)
    yield from fill(sock, memoryview(table))
    lengths = [int.from_bytes(table[i : i + 8], "little") for i in range(0, len(table), 8)]
    buffers = check_lengths(lengths, wants, header, peer)
    for buffer in buffers:
        yield from fill(sock, buffer)
    return buffers


def check_place(header, expected, peer, words):
    """Raise Mismatch unless the message is of the call and the round that this rank is in."""
    if header.group != expected.group or header.generation != expected.generation:
        raise Stranger(f"rank {peer} sent a message of another group or generation", peer)
    if header.fingerprint != expected.fingerprint or not header.same_place(expected):
        raise Mismatch(
            f"rank {peer} is in another call: call {header.sequence}, round {header.round}",
            peer,
            words,
        )


def check_lengths(lengths, wants, header, peer):
    """Match a message's chunks with what is wanted; the buffers to fill."""
    if len(lengths) != len(wants) or sum(lengths) != header.length:
        raise Mismatch(f"rank {peer} sent {len(lengths)} chunks, {len(wants)} were due", peer)
    buffers = []
    for length, (wanted, buffer) in zip(lengths, wants, strict=True):
        if wanted is not None and length != wanted:
            raise Mismatch(
                f"rank {peer} sent {length} bytes where this rank expects {wanted}", peer
            )
        buffers.append(memoryview(bytearray(length)) if buffer is None else buffer)
    return buffers
