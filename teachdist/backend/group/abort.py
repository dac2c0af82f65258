"""Failing and releasing: what happens to a group when something goes wrong on a rank.

A failure ends a *generation* of the group. Half-sent messages cannot be taken back and ranks no
longer agree on the number of the next call, so nothing more is sent: the rank writes why on its
page of the board, tells ranks of other hosts through their listeners, and every wait of the group
ends with that reason, in the words of the rank that failed first. The group itself survives:
see `recovery.py`.
"""

import atexit
import contextlib
import json
import sys
import threading
import time
from dataclasses import replace

import torch.distributed as dist

from teachdist.diagnose import histories, raised_at, roll, verdict
from teachdist.diagnose.inquiry import tell
from teachdist.diagnose.snapshot import CLOSED, DEAD, GONE
from teachdist.diagnose.watchdog import first_failure, situation
from teachdist.links import Interrupted, LinkError, Mismatch, PeerLost, TimedOut
from teachdist.links.board.layout import IN_CALL, Abort, Entry, unmarked

NOTICE = 0.5  # seconds in which a lost peer's reason may still become known


class Released(dist.DistBackendError):
    """This rank was freed from a call because another rank failed.

    First comes what happened there, with its line: "rank 2 failed: ValueError: bad batch, at
    train.py:31 (rank 0 was released from barrier() at train.py:40.)".
    """


def usable(communicator, words):
    """Raise if the group has been left, or its generation has ended."""
    if communicator.left:
        raise dist.DistBackendError(
            f'{words}: group "{communicator.title}" was destroyed on this rank'
        )
    if communicator.broken is not None:
        remedy = (
            "To go on, all ranks call teachdist.backend.recover(); a notebook does so by itself."
        )
        if communicator.deserted:
            remedy = f"It cannot meet anew: {communicator.deserted}."
        ended = f'group "{communicator.title}" ended with it, before {words}. {remedy}'
        raise Released(f"{communicator.broken.message} ({ended})")


def fail(communicator, error, number, words):
    """End the group's generation because of `error`; the exception to raise."""
    explained = explain(communicator, error, number, words)
    if isinstance(explained, Released):
        known = first_failure(communicator.view) or _noted(communicator)
        if known is not None:
            release(communicator, replace(known, generation=communicator.generation))
            return explained
    culprit = getattr(error, "rank", None)
    culprit = communicator.rank if culprit is None else culprit
    message = str(explained)
    if isinstance(error, KeyboardInterrupt):
        message = f"{communicator.who(communicator.rank)} was interrupted in {words}"
    release(communicator, failure_of(communicator, message, communicator.view.number(culprit)))
    return explained


def failure_of(communicator, message, culprit=None, whole=False):
    """The `Abort` with which this communicator ends its present generation."""
    number = communicator.view.number(communicator.rank) if culprit is None else culprit
    return Abort(communicator.generation, number, message, time.time(), whole)


def release(communicator, abort):
    """Free every other rank of the group from waiting: their calls end with `abort`."""
    if communicator.broken is not None or communicator.left:
        return
    communicator.broken = abort
    communicator.page.abort(abort)
    peers = communicator.peers
    strangers = [
        card
        for rank in range(peers.size)
        if (card := peers.known(rank)) is not None and card.host != peers.host
    ]
    if strangers:
        tell(strangers, peers.rank, abort)
    note = [abort.culprit, abort.message, abort.when, abort.whole]
    _ask_store(lambda: peers.store.compare_set(_note(communicator), "", json.dumps(note)))


def _note(communicator):
    return f"failed/{communicator.generation}"


# -- words -------------------------------------------------------------------------------------


def explain(communicator, error, number, words):
    """The documented exception for a failure, with the sentence that says what happened."""
    here = f'group "{communicator.title}"' + ("" if number is None else f", call {number}")
    me = communicator.who(communicator.rank)
    if isinstance(error, KeyboardInterrupt):
        return error
    if isinstance(error, PeerLost):
        error = reason_for(communicator, error)
    if isinstance(error, Interrupted):
        return Released(f"{error} ({me} was released from {words}.)")
    if isinstance(error, Mismatch):
        return dist.DistBackendError(_differing(communicator, error, number, words))
    if isinstance(error, TimedOut):
        why = str(error).removeprefix(f"{words}: ")
        where = situation(communicator.view, error.ranks or None, number is not None)
        return dist.DistBackendError(f"{here}: {me} gave up in {words}: {why}. {where}")
    clue = verdict.clue(histories(communicator.view)) if number is not None else ""
    text = f"{here}: {error}; {me} was in {words}.{clue}"
    left = "left the group" in str(error)
    return (dist.DistBackendError if left else dist.DistNetworkError)(text)


def _differing(communicator, error, number, words):
    view = communicator.view
    theirs = error.theirs
    if number is None:
        me = communicator.who(communicator.rank)
        return (
            f'group "{communicator.title}": {me} is in {words}, but '
            f"{communicator.who(error.rank)} sent with {theirs}. Dtype and number of "
            "elements must be the same on both sides."
        )
    number = error.number or number
    known, calls = _settled(communicator, number)
    if known is not None:
        return known.message
    entries = {rank: mine[number] for rank, mine in calls.items() if number in mine}
    entries.setdefault(view.number(communicator.rank), words)
    if theirs:
        call, how = unmarked(theirs)
        known = entries.get(view.number(error.rank))
        how = how or (known.how if known is not None and known.call == call else "")
        entries[view.number(error.rank)] = Entry(0, IN_CALL, 0, number, 0.0, 0, call, how=how)
    entries.setdefault(view.number(error.rank), str(error))
    return verdict.mismatch(communicator.title, number, entries, calls)


def _settled(communicator, number):
    """(a failure that has become known, what ranks of this host have called).

    The first message that does not fit comes before the other ranks have come to the call; with
    a little time they are there too, and the sentence can say who is the odd one out.
    """
    until = time.monotonic() + NOTICE
    while True:
        known, calls = first_failure(communicator.view), histories(communicator.view)
        if known is not None or _all_there(communicator, calls, number) or time.monotonic() > until:
            return known, calls
        time.sleep(0.01)


def _all_there(communicator, calls, number):
    """Whether every rank that this one can look at has come to the call."""
    peers = communicator.peers
    for rank in range(peers.size):
        with contextlib.suppress(LinkError):
            card = peers.known(rank)
            here = card is None or card.host == peers.host
            if here and number not in calls.get(communicator.view.number(rank), ()):
                return False
    return True


def reason_for(communicator, lost):
    """A connection that ended may be a rank's way of releasing us: then say its words."""
    until = time.monotonic() + NOTICE
    while True:
        known = first_failure(communicator.view) or _noted(communicator)
        if known is not None:
            return Interrupted(known.message, known.culprit)
        if lost.rank is None or "left" in str(lost):
            return lost
        place = roll(communicator.view, [lost.rank])[0]
        if place.state in (DEAD, GONE, CLOSED):
            return PeerLost(verdict.whereabouts([place]), lost.rank)
        if time.monotonic() > until:
            return lost
        time.sleep(0.02)  # a process that is ending closes its connections before it is gone


def _noted(communicator):
    key, store = _note(communicator), communicator.peers.store
    note = _ask_store(lambda: store.get(key) if store.check([key]) else None)
    return None if note is None else Abort(communicator.generation, *json.loads(note))


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
    _asking[:] = [one for one in _asking if one.is_alive()] + [thread]
    thread.start()
    thread.join(NOTICE)
    return answers[0] if answers else None


_asking = []  # threads that may still be in the store's client
_LAST_WORDS = 5.0  # seconds that they get when the program ends


@atexit.register
def _let_them_end():
    """A process that ends while a thread is in C++ code is terminated by it, with SIGABRT."""
    until = time.monotonic() + _LAST_WORDS
    for thread in _asking:
        thread.join(max(0.0, until - time.monotonic()))


# -- for whole processes -----------------------------------------------------------------------


def release_all(communicators, failed):
    """Free all other ranks of this process's groups.

    failed: the exception with which this rank failed, or a message. If the rank failed only
    because it had been released itself, the others hear of the first culprit.
    """
    communicators = list(communicators)
    first = [m.broken for m in communicators if m.broken is not None]
    first = min(first, key=lambda abort: abort.when, default=None)
    passed_on = isinstance(failed, Released) or (first is not None and _same(failed, first))
    for communicator in communicators:
        if passed_on and first is not None:
            abort = failure_of(communicator, first.message, first.culprit, True)
        else:
            abort = failure_of(communicator, _message(communicator, failed), None, True)
        release(communicator, abort)


def _same(failed, first):
    return first.message in _text(failed)


_LONGEST = 1_000  # characters of an error's text for the others: the store takes no megabytes


def _message(communicator, failed):
    if not isinstance(failed, BaseException):
        return str(failed)
    text = _text(failed).strip().splitlines()
    why = f"{type(failed).__name__}: {text[0][:_LONGEST]}" if text else type(failed).__name__
    if site := raised_at(failed):
        why = f"{why.rstrip('.')}, at {site}"
    return f"{communicator.who(communicator.rank)} failed: {why}"


def _text(failed):
    try:
        return str(failed)
    except Exception:  # noqa: BLE001  an exception that cannot be put in words must free the others, too
        return ""


# -- scripts -----------------------------------------------------------------------------------


@contextlib.contextmanager
def guarding(communicators):
    """Release the other ranks when the code inside raises; `communicators()` lists the groups."""
    try:
        yield
    except BaseException as error:
        if not (isinstance(error, SystemExit) and not error.code):
            release_all(communicators(), error)
        raise


def guard_program(communicators):
    """Do the same for an exception that ends the whole program."""
    before = sys.excepthook

    def hook(kind, error, traceback):
        with contextlib.suppress(Exception):
            release_all(communicators(), error)
        before(kind, error, traceback)

    sys.excepthook = hook
