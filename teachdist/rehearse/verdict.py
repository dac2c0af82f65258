"""Where all ranks are, and what that means: the sentences of a hang.

Nothing has to be asked of anybody: all ranks are here, and none runs. So their places are put in
the form that the judge of `diagnose` knows, and the words are those that real ranks would say.
"""

import sys

from teachdist.diagnose.call_site import _LIBRARY, is_users
from teachdist.diagnose.call_site import IDLE as WAITS_FOR_A_CELL
from teachdist.diagnose.call_site import place as place_of
from teachdist.diagnose.log import log
from teachdist.diagnose.snapshot import ABSENT, CALL, DEAD, GONE, USER, Elsewhere, Place
from teachdist.diagnose.verdict import parted, whereabouts
from teachdist.diagnose.verdict import verdict as verdict_on
from teachdist.links.board.layout import IDLE, IN_CALL, LEFT, Position
from teachdist.words import ranks_words


class Standing(Position):
    """A position on the clock of a virtual rank, which says nothing about "since when"."""

    def words(self):
        """The position as part of a sentence."""
        if self.state == LEFT:
            return "finished: it has left the group"
        if self.entry is None:
            return "in user code, before any call of this group"
        number = "" if self.entry.p2p else f", call {self.entry.number}"
        if self.state == IN_CALL:
            return f"in {self.call}{number}"
        return f"in user code, after {self.call}{number}"


def hang(job):
    """The sentences about a rehearsal in which nobody can go on."""
    waits = _waits(job)
    groups, elsewhere = [], {}
    for rank, actors in waits.items():
        for actor in actors:
            communicator = _member(actor)
            if communicator is None:
                elsewhere.setdefault(f"{actor.wait.what} at {_line(actor)}", []).append(rank)
            elif communicator.group not in groups:
                groups.append(communicator.group)
    said = [(group, places(job, group, waits)) for group in groups]
    for group, there in said:
        calls = {one.rank: one.calls for one in there}
        if parted(calls) is not None:
            return verdict_on(_title(group), there)
    sentences = [verdict_on(_title(group), there) for group, there in said]
    for words, ranks in elsewhere.items():
        verb = "waits" if len(ranks) == 1 else "wait"
        sentences.append(f"{ranks_words(ranks)} {verb} in {words}.")
    over = [rank.number for rank in job.ranks if rank.over]
    if over and not groups:
        verb = "has" if len(over) == 1 else "have"
        sentences.append(f"{ranks_words(over)} {verb} finished.")
    return " ".join(["Nobody can go on:", *dict.fromkeys(sentences)])


def situation(job, subject):
    """Where the other ranks are, for a rank that has given up waiting."""
    communicator = subject[0]
    there = [
        p
        for p in places(job, communicator.group, _waits(job))
        if p.rank != communicator.whose.number
    ]
    return f"{whereabouts(there)}."


def places(job, group, waits=None):
    """The `Place` of each rank of a group."""
    waits = _waits(job) if waits is None else waits
    return [_place(job, group, rank, waits) for rank in range(group.size)]


def _place(job, group, rank, waits):
    number = group.ranks[rank]
    whose = job.ranks[number]
    communicator = group.communicators.get(rank)
    mine = [actor for actor in waits.get(number, ()) if _member(actor) is communicator]
    others = [a for a in waits.get(number, ()) if _member(a) not in (None, communicator)]
    elsewhere = None
    if others and not mine:
        there, entry, awaits = _subject(others[0])
        elsewhere = Elsewhere(_title(there.group), entry, awaits)
    line = ""
    if not whose.over and not mine:
        actor = next(iter(waits.get(number, ())), None) or whose.actor
        line = _line(actor) if actor is not None else ""
        if actor is not None and actor.wait is not None and _member(actor) is None:
            line = f"{line}, in {actor.wait.what}"
    if whose.over and job.stays and whose.error is None:
        line = WAITS_FOR_A_CELL
    if communicator is None:
        return Place(number, ABSENT, None, line, elsewhere)
    gone = whose.over and line != WAITS_FOR_A_CELL
    state = LEFT if communicator.left or gone else IN_CALL if mine else IDLE
    entry, awaits = communicator.last, ()
    if mine:
        _, entry, awaits = _subject(mine[0])
        awaits = tuple(group.ranks.index(one) for one in awaits if one in group.ranks)
    about = {"group": _title(group), "ranks": list(group.ranks)}
    position = Standing(0, rank, state, entry, None, awaits, dict(communicator.history), about)
    if whose.error is not None:
        return Place(number, DEAD, position)
    return Place(number, {LEFT: GONE, IN_CALL: CALL}.get(state, USER), position, line, elsewhere)


def _waits(job):
    """{rank's number: its threads that wait}, without ranks that have none."""
    found = {}
    for actor in job.scheduler.blocked():
        found.setdefault(actor.rank.number, []).append(actor)
    return found


def _member(actor):
    subject = actor.wait.subject if actor.wait is not None else None
    return subject[0] if subject is not None and hasattr(subject[0], "group") else None


def _subject(actor):
    """(communicator, entry, the ranks of the job for which it waits)."""
    communicator, entry, *peer = actor.wait.subject
    if peer:
        awaits = () if peer[0] is None else (communicator.group.ranks[peer[0]],)
    else:
        here = communicator.group.meetings.get(entry.number, {})
        awaits = tuple(n for r, n in enumerate(communicator.group.ranks) if r not in here)
    return communicator, entry, awaits


def _title(group):
    communicator = next(iter(group.communicators.values()), None)
    return group.title or (communicator.name if communicator is not None else "?")


def line_of(thread):
    """Where a thread is in the user's code: "train.py:31"; "" if nowhere."""
    frame = sys._current_frames().get(thread.ident)
    while frame is not None:
        file = frame.f_code.co_filename
        if is_users(file) and not file.startswith(_LIBRARY):
            return place_of(file, frame.f_lineno)
        frame = frame.f_back
    return ""


def _line(actor):
    return line_of(actor.thread)


def standing(actor, seconds):
    """Say that the running thread has stood still for long, without having passed the baton."""
    log.warning(
        "%s stands still since %.0f s at %s, and all others with it: it waits for something that "
        "the rehearsal does not know of (a lock in C++, a socket, a process)",
        actor.rank,
        seconds,
        _line(actor) or "a place outside the user's code",
    )
