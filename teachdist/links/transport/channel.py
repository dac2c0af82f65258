"""A stream of bytes in both directions that never blocks: one connection, as code sees it.

What is to be sent waits in a queue until the system takes it; what is to be received is a
generator that yields whenever nothing more is there. So one `poll` can drive any number of
connections, and none of them can hold up the others.

    outgoing  [message][message] --flush--> socket --fill--> [room ahead] --> where it belongs

Small messages are read ahead into a room of 64 KB, so that header and contents cost one system
call; what is larger than that goes straight to its place.
"""

import contextlib
import select
import socket
from collections import deque

from teachdist.links.errors import PeerLost, ProtocolError

MAX_PIECES = 64  # buffers per sendmsg; the system's limit is 1024
PIECE = 1 << 20
AHEAD = 1 << 16


class Channel:
    """One connection with a peer. Queue entries are (mark, list of buffers)."""

    can_stir = False

    def __init__(self, sock):
        self.sock = sock
        self.queue = deque()
        self._ahead = memoryview(bytearray(AHEAD))
        self._begin = self._end = 0

    def fileno(self):
        """For poll."""
        return self.sock.fileno()

    def put(self, head, body):
        """Send a small message now; True. What the system does not take goes out later."""
        data = head + bytes(body)
        try:
            sent = self.sock.send(data)
        except BlockingIOError:
            sent = 0
        if sent < len(data):
            self.queue.append((None, [memoryview(data)[sent:]]))
        return True

    def flush(self):
        """Send what the system takes now; the marks of messages that are out."""
        out = []
        while self.queue and send_some(self.sock, self.queue[0][1]):
            out.append(self.queue.popleft()[0])
        return out

    def take(self, count):
        """`count` bytes if they are at hand in one piece; else None."""
        if not 0 < count <= self._end - self._begin:
            return None
        self._begin += count
        return bytes(self._ahead[self._begin - count : self._begin])

    def land(self, view):
        """Fill `view` if all of it is at hand; whether it was."""
        there = self.take(len(view))
        if there is None:
            return False
        view[:] = there
        return True

    def ahead(self, count):
        """The next `count` bytes if they have come, still to be taken; else None."""
        if self._begin == self._end:
            self._begin, self._end = 0, self._receive(self._ahead) or 0
        there = self._end - self._begin >= count
        return bytes(self._ahead[self._begin : self._begin + count]) if there else None

    def gather(self, count):
        """Receive `count` bytes, however many pieces they come in (a generator)."""
        data = bytearray(count)
        yield from self.fill(memoryview(data))
        return data

    def fill(self, view):
        """Receive until `view` is full; yields whenever nothing is there (a generator)."""
        while view:
            if self._begin == self._end:
                if len(view) >= AHEAD:
                    count = self._receive(view[:PIECE])
                    if count is None:
                        yield
                    else:
                        view = view[count:]
                    continue
                count = self._receive(self._ahead)
                if count is None:
                    yield
                    continue
                self._begin, self._end = 0, count
            count = min(len(view), self._end - self._begin)
            view[:count] = self._ahead[self._begin : self._begin + count]
            self._begin += count
            view = view[count:]

    def _receive(self, room):
        try:
            count = self.sock.recv_into(room)
        except BlockingIOError:
            return None
        if count == 0:
            raise EOFError
        return count

    def stirred(self):
        """Whether it is known, without asking the system, that something can go on."""
        return False

    def drowse(self):
        """About to sleep in `poll`; False if something has come meanwhile."""
        return True

    def woken(self, rung):
        """Awake again; `rung`: poll reported this connection."""

    @property
    def events(self):
        """What to poll for."""
        return select.POLLIN | select.POLLOUT * bool(self.queue)

    def cut(self):
        """End the connection in both directions."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)

    def close(self):
        """Hang up."""
        self.sock.close()


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


BROKEN = (EOFError, ValueError, OSError)


def broken(peer, error):
    """The `LinkError` that says of a connection's failure which rank it means."""
    if isinstance(error, EOFError):
        return PeerLost(f"rank {peer} closed its connection", peer)
    if isinstance(error, ValueError):
        return ProtocolError(f"the connection with rank {peer} brought {error}", peer)
    return PeerLost(f"the connection with rank {peer} broke: {error}", peer)


@contextlib.contextmanager
def guarded(peer):
    """Raise that error instead."""
    try:
        yield
    except BROKEN as error:
        raise broken(peer, error) from error
