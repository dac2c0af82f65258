"""A look around while waiting: has somebody failed, is the awaited rank alive, where is it?

Runs only when a wait has lasted a tick (see `links/waiting.py`); a call that goes well never
comes here. A waiting rank asks, once a tick:

1. Has a rank of the group failed and released the others? Then this wait ends too.
2. Is another rank in a different call of the same number? Then no message will tell: each waits
   for a third, or for one that the other will never send. The board tells.
3. Has an awaited rank left, or died? Only if it was so a tick ago as well: what it sent before it
   went may have been on its way. A receive from anybody is in vain only when all of them are gone.

After `hint_after` seconds it says so on the log, with where the others are, and again when ten
times as long has passed.
"""

from dataclasses import replace

from teachdist.diagnose import verdict
from teachdist.diagnose.log import TRACE, log
from teachdist.diagnose.snapshot import roll
from teachdist.links.errors import Interrupted, Mismatch, PeerLost


class Watchdog:
    """The look-out of one rank for one call.

    view: the group (see `places.View`). entry: (number, fingerprint) of the collective, or None
    for a send or receive. what: the call in words. hint_after: seconds until it says so.
    anybody: whether one of the ranks waited for is enough.
    """

    def __init__(self, view, what, hint_after=1.0, entry=None, anybody=False):
        self.view = view
        self.what = what
        self.entry = entry
        self.anybody = anybody
        self._hint_at = hint_after
        self._lost = set()

    def __call__(self, ranks, waited):
        """Raise when waiting has become pointless; log when it takes long."""
        log.log(TRACE, "%s looks around in %s", self.view.who(self.view.rank), self.what)
        released(self.view)
        if self.entry is not None:
            self._other_call()
        self._look_for(ranks)
        self.view.page.awaiting(ranks)
        if waited >= self._hint_at:
            self._hint_at = max(waited, self._hint_at) * 10
            self._hint(ranks, waited)

    def _other_call(self):
        number, fingerprint = self.entry
        peers = self.view.peers
        mine = peers.position(peers.rank)
        mine = mine.calls.get(number) if mine is not None else None
        for rank in range(peers.size):
            position = peers.position(rank) if rank != peers.rank else None
            theirs = position.calls.get(number) if position is not None else None
            if theirs is None or theirs.generation != peers.generation:
                continue
            other_way = mine is not None and verdict.ways([mine, theirs])
            if theirs.fingerprint != fingerprint or other_way:
                who = self.view.who(rank)
                raise Mismatch(f"{who} is in another call", rank, theirs.call)

    def _look_for(self, ranks):
        """Raise if one of `ranks` (anybody: all) has left or died, and had when last looked at."""
        peers = self.view.peers
        gone = {rank for rank in ranks if peers.gone(rank) or peers.left(rank)}
        lost = sorted(gone & self._lost)
        self._lost = gone
        if lost and (not self.anybody or len(lost) == len(ranks)):
            where = verdict.whereabouts(roll(self.view, lost, ask_them=False))
            raise PeerLost(where, lost[0] if len(lost) == 1 else None)

    def _hint(self, ranks, waited):
        view = self.view
        number = "" if self.entry is None else f", call {self.entry[0]}"
        log.warning(
            '%s has waited %.1f s in %s (group "%s"%s): %s',
            view.who(view.rank),
            waited,
            self.what,
            view.group,
            number,
            situation(view, ranks, self.entry is not None),
        )


def situation(view, ranks=None, collective=True):
    """Where `ranks` are, and what may be wrong, in sentences.

    collective: whether a collective is concerned, or else a send or receive.
    """
    places = roll(view, ranks)
    where = f"{verdict.whereabouts(places)}."
    if collective:
        me = view.number(view.rank)
        return where + verdict.crossing(places, [me]) + verdict.clue(histories(view))
    ring = verdict.circle(roll(view, ask_them=False))
    if not ring:
        return where
    return f"{where} {verdict.each_other(ring)}, so nothing will ever come."


def released(view):
    """Raise `Interrupted` if a rank of this group, or of the job, has released the others."""
    first = first_failure(view)
    if first is not None:
        raise Interrupted(first.message, first.culprit)


def first_failure(view):
    """The earliest failure of the present generation that this rank can know of, or None.

    A rank that has not joined this group cannot say so on a page of it: if its whole program has
    failed, its page of the job's first group says it.
    """
    peers = view.peers
    found = [view.inquiries.news] if view.inquiries is not None else []
    for rank in range(peers.size):
        found.append(peers.abort_of(rank))
        if view.world is not None and peers.known(rank) is None:
            found.append(_failed_elsewhere(view.world, view.number(rank)))
    found = [a for a in found if a is not None and a.generation in (peers.generation, None)]
    return min(found, key=lambda abort: abort.when, default=None)


def _failed_elsewhere(world, number):
    if number not in world.global_ranks:
        return None
    abort = world.peers.abort_of(world.global_ranks.index(number))
    if abort is None or not abort.whole or abort.generation != world.peers.generation:
        return None
    return replace(abort, generation=None)


def histories(view):
    """{rank's number in the job: its calls} for the ranks of this host."""
    calls = {}
    for rank in range(view.peers.size):
        position = view.peers.position(rank)
        if position is not None:
            mine = position.calls.items()
            calls[view.number(rank)] = {
                n: e for n, e in mine if e.generation == view.peers.generation
            }
    return calls
