"""A stream between two ranks of one host: a ring of shared memory in each direction.

    sender    WRITTEN = 700000 --.                      Both counters only grow. What lies between
                                 v                      them, modulo the ring's size, is on its way;
    +-----------[ on its way ]---+------------+         the sender may fill the rest, the receiver
                ^                                       may empty the part between.
    receiver    '-- READ = 400000

Where a socket copies into the system and out again and takes system calls for both, here the
sender copies in and the receiver copies out, a piece each at the same time. What sockets do better
remains with one: the ring goes with a connection, which tells of the other's end (also when it was
killed), and on which one byte wakes a sleeper (see `signals.py` for looking, yielding, sleeping).

The rank that dials makes the memory and offers it in its hello; the other's listener thread
opens it before it answers. From then on it lives as long as one of the two has it mapped: what a
rank sent before it ended can still be received. Without memory both use the socket alone.

Cost: 2.5 MB per pair of ranks that send to each other, taken with the first message.
"""

import contextlib
import select

from teachdist.links.transport.channel import Channel
from teachdist.links.transport.memory import attach, attach_other, create
from teachdist.links.transport.signals import KEEPS_ORDER, fence

RING = 5 << 18  # room for a message of 1 MB with its header: its sender need not wait
PIECE = RING // 2  # the other may begin with a piece while the next is being copied
PAGE = 4096
SIZE = PAGE + 2 * RING

# Words of the first page, by direction (0: from the rank that dialled) and by side.
_WRITTEN, _READ, _ASLEEP = (0, 8), (16, 24), (32, 40)


def offer():
    """Memory for a new connection: its descriptor, which the caller closes. OSError if none."""
    if not KEEPS_ORDER:  # a counter could be seen before the data
        raise OSError("this processor may reorder stores")
    return create(SIZE, "ring")


class RingChannel(Channel):
    """A connection whose bytes go through shared memory; used as a `Channel`.

    side: 0 for the rank that dialled, 1 for the one that answered.
    """

    can_stir = True

    def __init__(self, sock, mapped, side):
        super().__init__(sock)
        self._bytes = memoryview(mapped)
        self._words = self._bytes[:PAGE].cast("Q")
        self._side = side
        self._out, self._in = PAGE + side * RING, PAGE + (1 - side) * RING
        self._written = self._read = 0
        self._ended = False

    def put(self, head, body):
        """Put a small message into the ring if there is room for all of it; whether there was."""
        if self._ended:
            raise EOFError
        if RING - (self._written - self._words[_READ[self._side]]) < len(head) + len(body):
            return False
        for data in (head, body):
            at, size = self._written % RING, len(data)
            start, first = self._out + at, RING - at
            if size <= first:
                self._bytes[start : start + size] = data
            else:
                self._bytes[start : start + first] = data[:first]
                self._bytes[self._out : self._out + size - first] = data[first:]
            self._written += size
        self._words[_WRITTEN[self._side]] = self._written
        self._wake_other()
        return True

    def flush(self):
        """Put what fits into the ring; the marks of messages that are in it."""
        out = []
        while self.queue and self._put(self.queue[0][1]):
            out.append(self.queue.popleft()[0])
        return out

    def _put(self, buffers):
        words, side = self._words, self._side
        while buffers:
            if self._ended:
                raise EOFError
            at = self._written % RING
            free = RING - (self._written - words[_READ[side]])
            count = min(len(buffers[0]), free, PIECE, RING - at)
            if not count:
                return False
            start = self._out + at
            self._bytes[start : start + count] = buffers[0][:count]
            self._written += count
            words[_WRITTEN[side]] = self._written
            self._wake_other()
            if count == len(buffers[0]):
                buffers.pop(0)
            else:
                buffers[0] = buffers[0][count:]
        return True

    def take(self, count):
        """`count` bytes if they are in the ring in one piece; else None.

        The other side is not woken: the `land` or `fill` that ends every message does so.
        """
        words, side, read = self._words, 1 - self._side, self._read
        at = read % RING
        if not 0 < count <= words[_WRITTEN[side]] - read or count > RING - at:
            return None
        start = self._in + at
        data = bytes(self._bytes[start : start + count])
        self._read = words[_READ[side]] = read + count
        return data

    def land(self, view):
        """Fill `view` if all of it is in the ring in one piece; whether it was."""
        words, side, read, count = self._words, 1 - self._side, self._read, len(view)
        at = read % RING
        if count > words[_WRITTEN[side]] - read or count > RING - at or count > PIECE:
            return False
        start = self._in + at
        view[:] = self._bytes[start : start + count]
        self._read = words[_READ[side]] = read + count
        self._wake_other()
        return True

    def fill(self, view):
        """Receive until `view` is full; yields whenever nothing is there (a generator)."""
        words, side = self._words, 1 - self._side
        if not view:
            self._wake_other()
        while view:
            at = self._read % RING
            there = words[_WRITTEN[side]] - self._read
            if not 0 <= there <= RING:
                raise ValueError("counters that make no sense")
            count = min(len(view), there, PIECE, RING - at)
            if not count:
                if self._ended and words[_WRITTEN[side]] == self._read:
                    raise EOFError
                yield
                continue
            start = self._in + at
            view[:count] = self._bytes[start : start + count]
            self._read += count
            words[_READ[side]] = self._read
            self._wake_other()
            view = view[count:]

    def _wake_other(self):
        fence()
        if self._words[_ASLEEP[1 - self._side]]:
            with contextlib.suppress(OSError):  # a full socket wakes, too; a broken one is seen
                self.sock.send(b"x")

    def close(self):
        """Hang up, and let go of the memory."""
        super().close()
        self._ended = True
        self._bytes = self._words = memoryview(bytearray(PAGE)).cast("Q")

    @property
    def events(self):
        """What to poll for: a byte that wakes, or the end."""
        return 0 if self._ended else select.POLLIN

    def stirred(self):
        """Whether something has come, be it the end, or room has been made for what waits."""
        words, side = self._words, self._side
        if words[_WRITTEN[1 - side]] != self._read or self._ended:
            return True
        return bool(self.queue) and self._written - words[_READ[side]] < RING

    def drowse(self):
        """About to sleep; False if something has come meanwhile."""
        self._words[_ASLEEP[self._side]] = 1
        fence()
        return not self.stirred()

    def woken(self, rung):
        """Awake again; `rung`: the socket has something."""
        self._words[_ASLEEP[self._side]] = 0
        if rung:
            with contextlib.suppress(BlockingIOError):
                while not self._ended:
                    try:
                        self._ended = not self.sock.recv(4096)
                    except ConnectionError:
                        self._ended = True


def answer(sock, pid, memory):
    """The channel for a caller that offered memory, if it can be opened; tells the caller."""
    try:
        mapped = attach_other(pid, memory, SIZE, "ring")
    except OSError:
        sock.sendall(b"s")
        return Channel(sock)
    sock.sendall(b"m")
    return RingChannel(sock, mapped, 1)


def answered(sock, memory):
    """The channel once this rank, which offered `memory` (None: it had none), has an answer."""
    reply = sock.recv(1)
    if not reply:
        raise ConnectionError("it hung up")
    if memory is None or reply != b"m":
        return Channel(sock)
    return RingChannel(sock, attach(memory, SIZE), 0)
