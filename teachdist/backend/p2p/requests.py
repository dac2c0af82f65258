"""Sends and receives under way: a parcel of bytes, the letter that the mail knows, and its Work.

    dist.send(x, 1)  ->  Parcel (bytes of x)  ->  Letter in the mail  ->  MailWork, or done at once

Whoever waits drives the mail (see `links/p2p/messages.py`). A send that fits into the memory shared
with its receiver is over before it could be waited for, and needs no letter at all.
"""

from dataclasses import dataclass
from functools import partial

from teachdist.backend.group import abort
from teachdist.backend.work import Work, done
from teachdist.diagnose import Watchdog, call_site
from teachdist.links import Header, LinkError, Patience
from teachdist.links.p2p.matching import Letter
from teachdist.links.transport.header import POINT_TO_POINT


@dataclass(slots=True)
class Parcel:
    """The bytes of a message, what it is called, and a fingerprint of what the bytes are.

    values: what the bytes belong to, if they are not the caller's own. landed: called when the
    bytes have come. veil: poison over the caller's tensor until then. head: (place of the call in
    the user's program, what was sent in front of the bytes), for the next send of the same.
    """

    view: memoryview
    words: str
    fingerprint: int
    values: object = None
    landed: object = None
    veil: object = None
    head: tuple = ("", b"")


class MailWork(Work):
    """The handle of a send or a receive: whoever waits drives it."""

    def __init__(self, communicator, kind, parcel, words, peer, tag, outputs, closing):
        super().__init__(outputs, closing)
        self.parcel = parcel
        self.veil = parcel.veil
        self._communicator = communicator
        self._words = words
        self.letter = Letter(peer, tag, parcel.view, kind, self._settled, parcel.fingerprint)

    def _settled(self, letter):
        self.source = letter.source
        error = letter.error
        if error is not None:
            if isinstance(error, LinkError):
                error = abort.explain(self._communicator, error, None, self._words)
        elif self.parcel.landed is not None:
            self.parcel.landed()
        self.finish(error)

    def wait(self, timeout=None):
        """Block until done; True, or raises what went wrong."""
        if self.noted is not None:
            self.noted.wait()
        if not self.over:
            self._communicator.mail.look(self.letter)
        if not self.over:
            self._drive(timeout.total_seconds() if timeout else None)
        return super().wait(timeout)

    def _drive(self, limit):
        communicator, words = self._communicator, self._words
        place = communicator.page.begin_mail(communicator.generation, words)
        watcher = partial(Watchdog, communicator.view, words, communicator.options.hint_after)
        limit = limit if limit and limit > 0 else communicator.timeout
        try:
            communicator.mail.wait(self.letter, Patience(limit, None, words, watcher))
        except LinkError as error:
            raise abort.explain(communicator, error, None, words) from error
        finally:
            communicator.page.end_mail(place)


def send(communicator, parcel, peer, tag, outputs=(), closing=None):
    """Post a send of a `Parcel` to a group rank; a Work."""
    communicator.usable(parcel.words)
    site = call_site(3)
    written_at, head = parcel.head
    if written_at != site:
        head = _head(communicator, parcel, site, tag)
        parcel.head = (site, head)
    if closing is None and communicator.mail.send_at_once(peer, head, parcel.view):
        return done(outputs)
    words = f"{parcel.words} at {site}"
    work = MailWork(communicator, "send", parcel, words, peer, tag, outputs, closing)
    communicator.mail.send(head, work.letter)
    return _open(communicator, work)


def _head(communicator, parcel, site, tag):
    """Header, words and length of a message."""
    about = {"kind": POINT_TO_POINT, "tag": tag, "fingerprint": parcel.fingerprint}
    header = Header(communicator.number, communicator.generation, **about)
    words = f"{parcel.words} at {site}"
    return header.message(0, 0, words.encode(), (len(parcel.view),))


def receive(communicator, parcel, peer, tag, outputs=(), closing=None):
    """Post a receive from a group rank, or from anybody (None); a Work."""
    communicator.usable(parcel.words)
    words = f"{parcel.words} at {call_site(3)}"
    work = MailWork(communicator, "recv", parcel, words, peer, tag, outputs, closing)
    communicator.mail.receive(work.letter)
    return _open(communicator, work)


def _open(communicator, work):
    """Nobody may ever wait for this work: have it driven all the same."""
    if not (work.over or communicator.mail.attended):
        watch = Watchdog(communicator.view, "point-to-point operations", float("inf"))
        communicator.mail.drive_in_background(watch, communicator.timeout)
    return work
