"""Failing and releasing: what happens to a group when something goes wrong on a rank.

A failure ends a *generation* of the group. Half-sent messages cannot be taken back and ranks no
longer agree on the number of the next call, so nothing more is sent: the rank writes why on its
page of the board, tells ranks of other hosts through their doors, and every wait of the group
ends with that reason, in the words of the rank that failed first. The group itself survives:
see `recovery.py`.
"""

import contextlib
import json
import sys
import threading
import time
from dataclasses import replace

import torch.distributed as dist

from teachdist.diagnose import histories, judge, raised_at, roll
from teachdist.diagnose.door import tell
from teachdist.diagnose.places import CLOSED, DEAD, GONE
from teachdist.diagnose.watch import first_failure, situation
from teachdist.links import Interrupted, LinkError, Mismatch, PeerLost, TimedOut
from teachdist.links.page import IN_CALL, Abort, Entry, unmarked

NOTICE = 0.5  # seconds in which a lost peer's reason may still become known


class Released(dist.DistBackendError):
    """This rank was freed from a call because another rank failed.

    First comes what happened there, with its line: "rank 2 failed: ValueError: bad batch, at
    train.py:31 (rank 0 was released from barrier() at train.py:40.)".
    """


def usable(member, words):
    """Raise if the group has been left, or its generation has ended."""
    if member.left:
        raise dist.DistBackendError(f'{words}: group "{member.title}" was destroyed on this rank')
    if member.broken is not None:
        remedy = (
            "To go on, all ranks call teachdist.backend.recover(); a notebook does so by itself."
        )
        if member.deserted:
            remedy = f"It cannot meet anew: {member.deserted}."
        ended = f'group "{member.title}" ended with it, before {words}. {remedy}'
        raise Released(f"{member.broken.message} ({ended})")


def fail(member, error, number, words):
    """End the group's generation because of `error`; the exception to raise."""
    explained = explain(member, error, number, words)
    if isinstance(explained, Released):
        known = first_failure(member.view) or _noted(member)
        if known is not None:
            release(member, replace(known, generation=member.generation))
            return explained
    culprit = getattr(error, "rank", None)
    culprit = member.rank if culprit is None else culprit
    message = str(explained)
    if isinstance(error, KeyboardInterrupt):
        message = f"{member.who(member.rank)} was interrupted in {words}"
    release(member, failure_of(member, message, member.view.number(culprit)))
    return explained


def failure_of(member, message, culprit=None, whole=False):
    """The `Abort` with which this member ends its present generation."""
    number = member.view.number(member.rank) if culprit is None else culprit
    return Abort(member.generation, number, message, time.time(), whole)


def release(member, abort):
    """Free every other rank of the group from waiting: their calls end with `abort`."""
    if member.broken is not None or member.left:
        return
    member.broken = abort
    member.page.abort(abort)
    roster = member.roster
    strangers = [
        rank
        for rank in range(roster.size)
        if (card := roster.known(rank)) is not None and card.host != roster.host
    ]
    if strangers:
        tell(roster, strangers, abort)
    note = [abort.culprit, abort.message, abort.when, abort.whole]
    _ask_store(lambda: roster.store.compare_set(_note(member), "", json.dumps(note)))


def _note(member):
    return f"failed/{member.generation}"


# -- words -------------------------------------------------------------------------------------


def explain(member, error, number, words):
    """The documented exception for a failure, with the sentence that says what happened."""
    here = f'group "{member.title}"' + ("" if number is None else f", call {number}")
    me = member.who(member.rank)
    if isinstance(error, KeyboardInterrupt):
        return error
    if isinstance(error, PeerLost):
        error = reason_for(member, error)
    if isinstance(error, Interrupted):
        return Released(f"{error} ({me} was released from {words}.)")
    if isinstance(error, Mismatch):
        return dist.DistBackendError(_differing(member, error, number, words))
    if isinstance(error, TimedOut):
        why = str(error).removeprefix(f"{words}: ")
        where = situation(member.view, error.ranks or None, number is not None)
        return dist.DistBackendError(f"{here}: {me} gave up in {words}: {why}. {where}")
    clue = judge.clue(histories(member.view)) if number is not None else ""
    text = f"{here}: {error}; {me} was in {words}.{clue}"
    left = "left the group" in str(error)
    return (dist.DistBackendError if left else dist.DistNetworkError)(text)


def _differing(member, error, number, words):
    view = member.view
    theirs = error.theirs
    if number is None:
        me = member.who(member.rank)
        return (
            f'group "{member.title}": {me} is in {words}, but {member.who(error.rank)} sent with '
            f"{theirs}. Dtype and number of elements must be the same on both sides."
        )
    number = error.number or number
    known, calls = _settled(member, number)
    if known is not None:
        return known.message
    entries = {rank: mine[number] for rank, mine in calls.items() if number in mine}
    entries.setdefault(view.number(member.rank), words)
    if theirs:
        call, how = unmarked(theirs)
        known = entries.get(view.number(error.rank))
        how = how or (known.how if known is not None and known.call == call else "")
        entries[view.number(error.rank)] = Entry(0, IN_CALL, 0, number, 0.0, 0, call, how=how)
    entries.setdefault(view.number(error.rank), str(error))
    return judge.mismatch(member.title, number, entries, calls)


def _settled(member, number):
    """(a failure that has become known, what ranks of this host have called).

    The first message that does not fit comes before the other ranks have come to the call; with
    a little time they are there too, and the sentence can say who is the odd one out.
    """
    until = time.monotonic() + NOTICE
    while True:
        known, calls = first_failure(member.view), histories(member.view)
        if known is not None or _all_there(member, calls, number) or time.monotonic() > until:
            return known, calls
        time.sleep(0.01)


def _all_there(member, calls, number):
    """Whether every rank that this one can look at has come to the call."""
    roster = member.roster
    for rank in range(roster.size):
        with contextlib.suppress(LinkError):
            card = roster.known(rank)
            here = card is None or card.host == roster.host
            if here and number not in calls.get(member.view.number(rank), ()):
                return False
    return True


def reason_for(member, lost):
    """A connection that ended may be a rank's way of releasing us: then say its words."""
    until = time.monotonic() + NOTICE
    while True:
        known = first_failure(member.view) or _noted(member)
        if known is not None:
            return Interrupted(known.message, known.culprit)
        if lost.rank is None or "left" in str(lost):
            return lost
        place = roll(member.view, [lost.rank])[0]
        if place.state in (DEAD, GONE, CLOSED):
            return PeerLost(judge.whereabouts([place]), lost.rank)
        if time.monotonic() > until:
            return lost
        time.sleep(0.02)  # a process that is ending closes its connections before it is gone


def _noted(member):
    key, store = _note(member), member.roster.store
    note = _ask_store(lambda: store.get(key) if store.check([key]) else None)
    return None if note is None else Abort(member.generation, *json.loads(note))


def _ask_store(ask):
    """What ask() answers; None if the store is gone, or does not answer soon.

    Its client waits in C++, deaf to Ctrl-C, for minutes if need be, and the process that hosts the
    store may be the one that is stopped. So a thread asks.
    """
    answers = []

    def asking():
        with contextlib.suppress(RuntimeError):
            answers.append(ask())

    thread = threading.Thread(target=asking, name="teachdist-note", daemon=True)
    thread.start()
    thread.join(NOTICE)
    return answers[0] if answers else None


# -- for whole processes -----------------------------------------------------------------------


def release_all(members, failed):
    """Free all other ranks of this process's groups.

    failed: the exception with which this rank failed, or a message. If the rank failed only
    because it had been released itself, the others hear of the first culprit.
    """
    members = list(members)
    first = [m.broken for m in members if m.broken is not None]
    first = min(first, key=lambda abort: abort.when, default=None)
    passed_on = isinstance(failed, Released) or (first is not None and _same(failed, first))
    for member in members:
        if passed_on and first is not None:
            abort = failure_of(member, first.message, first.culprit, True)
        else:
            abort = failure_of(member, _message(member, failed), None, True)
        release(member, abort)


def _same(failed, first):
    return first.message in _text(failed)


def _message(member, failed):
    if not isinstance(failed, BaseException):
        return str(failed)
    text = _text(failed).strip().splitlines()
    why = f"{type(failed).__name__}: {text[0]}" if text else type(failed).__name__
    if site := raised_at(failed):
        why = f"{why.rstrip('.')}, at {site}"
    return f"{member.who(member.rank)} failed: {why}"


def _text(failed):
    try:
        return str(failed)
    except Exception:  # noqa: BLE001  an exception that cannot be put in words must free the others, too
        return ""


# -- scripts -----------------------------------------------------------------------------------


@contextlib.contextmanager
def guarding(members):
    """Release the other ranks when the code inside raises; `members()` lists the groups."""
    try:
        yield
    except BaseException as error:
        if not (isinstance(error, SystemExit) and not error.code):
            release_all(members(), error)
        raise


def guard_program(members):
    """Do the same for an exception that ends the whole program."""
    before = sys.excepthook

    def hook(kind, error, traceback):
        with contextlib.suppress(Exception):
            release_all(members(), error)
        before(kind, error, traceback)

    sys.excepthook = hook
