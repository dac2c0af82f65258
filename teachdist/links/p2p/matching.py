"""Message matching: where receives and messages find each other.

    posted receives  (source or any, tag) ---+
                                             +--> the first that fit each other, in order
    messages arrived (source, tag)       ----+

A message that nobody has asked for yet waits in memory ("unexpected" in MPI's terms). That is
what lets two ranks send to each other at once, with messages larger than any buffer of the
system: while a rank waits for its own send to go out it keeps taking in what comes.
"""

from teachdist.links.errors import Mismatch
from teachdist.links.transport.header import POINT_TO_POINT


class Request:
    """One operation: a send on its way or a receive that waits; `done` once it is over."""

    def __init__(self, peer, tag, buffer, kind, on_done=None, fits=None):
        self.peer = peer  # None: receive from anybody
        self.tag = tag
        self.buffer = buffer
        self.kind = kind  # "send" or "recv"
        self.source = None
        self.error = None
        self.done = False
        self.fits = fits  # the fingerprint that the other side must have
        self._on_done = on_done

    def finish(self, error=None):
        """Settle the operation; tells who asked to be told."""
        self.error = error
        self.done = True
        told, self._on_done = self._on_done, None
        if told is not None:
            told(self)


class Arrived:
    """A message in memory. said: its words, as bytes."""

    __slots__ = ("data", "header", "said", "source")

    def __init__(self, source, header, said, data):
        self.source, self.header, self.said, self.data = source, header, said, data

    @property
    def words(self):
        """What the sender says of it, with its place in the sender's program."""
        return bytes(self.said).decode(errors="replace")


class Matching:
    """Receives and messages of one rank. settled: (request, error) of operations that are over."""

    def __init__(self):
        self.receives = []
        self.arrived = []
        self.settled = []

    def post(self, request):
        """A receive is posted."""
        for message in self.arrived:
            if fits(request, message):
                self.arrived.remove(message)
                self._hand_over(request, message)
                return
        self.receives.append(request)

    def take(self, message):
        """A message has come into memory."""
        request = self.claim(message)
        if request is None:
            self.arrived.append(message)
        else:
            self._hand_over(request, message)

    def claim(self, message):
        """The first posted receive that fits, taken off the list; None if there is none."""
        for request in self.receives:
            if fits(request, message):
                self.receives.remove(request)
                request.source = message.source
                return request
        return None

    def _hand_over(self, request, message):
        request.source = message.source
        wrong = misfit(request, message)
        if wrong is None:
            request.buffer[:] = message.data
        self.settled.append((request, wrong))


def fits(request, message):
    """Whether a receive asks for a message."""
    return request.peer in (None, message.source) and request.tag == message.header.tag


def misfit(request, message):
    """What is wrong with a message for a receive that asks for it, or None."""
    header = message.header
    same_length = header.length == len(request.buffer)
    same_kind = request.fits is None or header.fingerprint == request.fits
    if header.kind == POINT_TO_POINT and same_length and same_kind:
        return None
    said = message.words or f"{header.length} bytes"
    return Mismatch(f"the message from rank {message.source} does not fit", message.source, said)
