"""Calls in which this rank only gave: were they the same call on the other ranks?

A rank that takes something in a call compares fingerprints with what it takes. The root of a
broadcast takes nothing: it puts its tensor where others can read it and goes on, while another
rank is in a different call. If that one waits for anything, it notices, and says so on the board.
But two ranks may each give and neither wait:

    rank 0    broadcast(x, src=0)    barrier()
    rank 1    reduce(x, dst=0)       barrier()

So after such a call the rank looks back when it makes its next one: has somebody failed, and what
did the others' pages say of that number? At the latest then the mismatch has its sentence, unless
the other has not come so far. Of calls that follow each other within a millisecond and take
nothing, several are looked back to at once.

Cost: a few words of shared memory for each other rank of the host, and only after calls that take
nothing; but these words are in another processor's cache, which makes them dear. A rank that has
not come to one call has not come to those after it.
"""

from collections import deque
from time import monotonic

from teachdist.diagnose.log import log
from teachdist.diagnose.watchdog import released
from teachdist.links import LinkError, Mismatch

_MOST = 8  # calls to look back to
PAUSE = 0.001  # seconds between two looks, if nothing else calls for one


class LateMismatch:
    """What this rank has called without hearing of the others."""

    def __init__(self):
        self.pending = False  # whether there may be calls to look back to
        self._new = []  # (number, fingerprint, words) of those since the last look
        self._calls = {}  # rank -> the same of those to which it had not come by then
        self._looked = 0.0
        self._board_readers = {}  # rank -> its page, looked up once

    def note(self, number, fingerprint, words):
        """The call is over for this rank, which has heard nothing from the others."""
        self.pending = True
        self._new.append((number, fingerprint, words))

    def due(self, route):
        """Whether to look before a call by this `Route`."""
        if route is None or route.plan.listens or len(self._new) >= _MOST:
            return True
        return monotonic() - self._looked > PAUSE

    def look_back(self, communicator):
        """Raise what the other ranks' pages say of those calls, as a call itself would."""
        self.pending, self._looked = False, monotonic()
        new, self._new = self._new, []
        for rank in communicator.others:
            calls = self._calls.setdefault(rank, deque(maxlen=_MOST))
            calls.extend(new)
            reader = self._board_readers.get(rank) or self._find(communicator.view, rank)
            if reader is None:
                calls.clear()  # on another host: what is on the wire will tell it there
            while calls:
                number, fingerprint, _ = calls[0]
                failed, found = reader.glance(number)
                if failed or (found and found[1] != fingerprint):
                    self._look_closely(communicator, rank, reader, calls[0], found)
                if found is None:  # nor has it come to those after it
                    self.pending = True
                    break
                calls.popleft()

    def _look_closely(self, communicator, rank, reader, call, found):
        view, (number, fingerprint, words) = communicator.view, call
        try:
            if reader.abort() is not None:
                released(view)
            if found and found[1] != fingerprint and found[0] == view.peers.generation:
                entry = reader.read().calls.get(number)
                raise Mismatch(f"{view.who(rank)} is in another call", rank, entry and entry.call)
        except LinkError as error:
            self._calls.clear()
            raise communicator.failed(error, number, words) from error

    def last_look(self, communicator):
        """The rank leaves the group: say on the log what it can no longer raise."""
        try:
            self.look_back(communicator)
        except RuntimeError as error:
            log.error("%s", error)

    def _find(self, view, rank):
        reader = view.peers.reader(rank)
        if reader is not None:
            self._board_readers[rank] = reader
        return reader
