"""A look around while waiting: has somebody failed, is the awaited rank alive, where is it?

Runs only when a wait has lasted a tick (see `links/waiting.py`); a call that goes well never
comes here.
"""

import logging

from teachdist.diagnose.sentence import whereabouts
from teachdist.links.board import LEFT
from teachdist.links.errors import Interrupted, PeerLost

log = logging.getLogger("teachdist")


class Watch:
    """The look-out of one rank for one call.

    name(r): how to call group rank r. hint_after: seconds after which a waiting rank says so.
    """

    def __init__(self, roster, name, what, hint_after=1.0):
        self.roster = roster
        self.name = name
        self.what = what
        self.hint_after = hint_after
        self._hinted = False

    def __call__(self, ranks, waited):
        """Raise when waiting has become pointless; log, once, when it takes long."""
        self._released()
        for rank in ranks:
            position = self.roster.position(rank)
            if self.roster.gone(rank):
                where = f", last seen {position.words()}" if position is not None else ""
                raise PeerLost(f"the process of {self.name(rank)} has ended{where}", rank)
            if position is not None and position.state == LEFT:
                raise PeerLost(f"{self.name(rank)} has left the group", rank)
        if waited >= self.hint_after and not self._hinted:
            self._hinted = True
            log.warning(
                "%s is waiting in %s for %s",
                self.name(self.roster.rank),
                self.what,
                whereabouts(ranks, self.roster, self.name),
            )

    def _released(self):
        for rank in range(self.roster.size):
            if rank == self.roster.rank:
                continue
            position = self.roster.position(rank)
            if position is not None and position.abort is not None:
                culprit, message = position.abort
                raise Interrupted(message, culprit)
