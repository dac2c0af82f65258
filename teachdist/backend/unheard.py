"""Calls in which this rank only gave: were they the same call on the other ranks?

A rank that takes something in a call compares fingerprints with what it takes. The root of a
broadcast takes nothing: it puts its tensor where others can read it and goes on, while another
rank is in a different call. If that one waits for anything, it notices, and says so on the board.
But two ranks may each give and neither wait:

    rank 0    broadcast(x, src=0)    barrier()
    rank 1    reduce(x, dst=0)       barrier()

So after such a call the rank looks back when it makes its next one: has somebody failed, and what
did the others' pages say of that number? At the latest then the mismatch has its sentence, unless
the other has not come so far.

Cost: two reads of shared memory for each other rank of the host, a microsecond, and only after
calls that take nothing.
"""

from teachdist.diagnose.log import log
from teachdist.diagnose.watch import released
from teachdist.links import LinkError, Mismatch

_MOST = 8  # calls to look back to


class Unheard:
    """What this rank has called without hearing of the others."""

    def __init__(self):
        self.calls = []  # [number, fingerprint, words, ranks that have not come to it]
        self._windows = {}  # rank -> its page, looked up once

    def note(self, number, fingerprint, words, ranks):
        """The call is over for this rank, which has heard nothing from these ranks."""
        self.calls.append((number, fingerprint, words, set(ranks)))
        del self.calls[:-_MOST]

    def look_back(self, member):
        """Raise what the other ranks' pages say of those calls, as `Member` does for a call."""
        for number, fingerprint, words, ranks in self.calls:
            try:
                self._compare(member.view, number, fingerprint, ranks)
            except LinkError as error:
                self.calls.clear()
                raise member.failed(error, number, words) from error
        self.calls = [call for call in self.calls if call[-1]]

    def last_look(self, member):
        """The rank leaves the group: say on the log what it can no longer raise."""
        try:
            self.look_back(member)
        except RuntimeError as error:
            log.error("%s", error)

    def _compare(self, view, number, fingerprint, ranks):
        for rank in tuple(ranks):
            window = self._windows.get(rank) or self._find(view, rank)
            if window is None:
                ranks.discard(rank)  # on another host: what is on the wire will tell it there
                continue
            failed, found = window.glance(number)
            if failed:
                released(view)
            if found is None:
                continue
            generation, theirs = found
            if theirs != fingerprint and generation == view.roster.generation:
                entry = window.read().calls.get(number)
                raise Mismatch(f"{view.who(rank)} is in another call", rank, entry and entry.call)
            ranks.discard(rank)

    def _find(self, view, rank):
        window = view.roster.window(rank)
        if window is not None:
            self._windows[rank] = window
        return window
