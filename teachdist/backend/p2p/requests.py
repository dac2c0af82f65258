"""Sends and receives under way: the message, the request that the links know, and its Work.

    dist.send(x, 1)  ->  Message (bytes of x)  ->  Request  ->  MessageWork, or done at once

Whoever waits moves the messages (see `links/p2p/messages.py`). A send that fits into the memory
shared with its receiver is over before it could be waited for, and needs no request at all.
"""

from dataclasses import dataclass
from functools import partial

from teachdist.backend.group import abort
from teachdist.backend.work import Work, done
from teachdist.diagnose import Watchdog, call_site
from teachdist.links import Deadline, Header, LinkError
from teachdist.links.p2p.matching import Request
from teachdist.links.transport.header import POINT_TO_POINT


@dataclass(slots=True)
class Message:
    """The bytes of a message, what it is called, and a fingerprint of what the bytes are.

    values: what the bytes belong to, if they are not the caller's own. landed: called when the
    bytes have come. poisoned: poison over the caller's tensor until then. head: (place of the call
    in the user's program, what was sent in front of the bytes), for the next send of the same.
    """

    view: memoryview
    words: str
    fingerprint: int
    values: object = None
    landed: object = None
    poisoned: object = None
    head: tuple = ("", b"")


class MessageWork(Work):
    """The handle of a send or a receive: whoever waits drives it."""

    def __init__(self, communicator, kind, message, words, peer, tag, outputs, closing):
        super().__init__(outputs, closing)
        self.message = message
        self.poisoned = message.poisoned
        self._communicator = communicator
        self._words = words
        self.request = Request(peer, tag, message.view, kind, self._settled, message.fingerprint)

    def _settled(self, request):
        self.source = request.source
        error = request.error
        if error is not None:
            if isinstance(error, LinkError):
                error = abort.explain(self._communicator, error, None, self._words)
        elif self.message.landed is not None:
            self.message.landed()
        self.finish(error)

    def wait(self, timeout=None):
        """Block until done; True, or raises what went wrong."""
        if self.noted is not None:
            self.noted.awaited()
        if not self.over:
            self._communicator.messages.look(self.request)
        if not self.over:
            self._drive(timeout.total_seconds() if timeout else None)
        return super().wait(timeout)

    def _drive(self, limit):
        communicator, words = self._communicator, self._words
        place = communicator.page.begin_message(communicator.generation, words)
        after, anybody = communicator.options.hint_after, self.request.peer is None
        watcher = partial(Watchdog, communicator.view, words, after, anybody=anybody)
        limit = limit if limit and limit > 0 else communicator.timeout
        try:
            communicator.messages.wait(self.request, Deadline(limit, None, words, watcher))
        except LinkError as error:
            raise abort.explain(communicator, error, None, words) from error
        finally:
            communicator.page.end_message(place)


def send(communicator, message, peer, tag, outputs=(), closing=None):
    """Post a send of a `Message` to a group rank; a Work."""
    communicator.usable(message.words)
    site = call_site(3)
    written_at, head = message.head
    if written_at != site:
        head = _head(communicator, message, site, tag)
        message.head = (site, head)
    if closing is None and communicator.messages.send_at_once(peer, head, message.view):
        return done(outputs)
    words = f"{message.words} at {site}"
    work = MessageWork(communicator, "send", message, words, peer, tag, outputs, closing)
    communicator.messages.send(head, work.request)
    return _open(communicator, work)


def _head(communicator, message, site, tag):
    """Header, words and length of a message."""
    about = {"kind": POINT_TO_POINT, "tag": tag, "fingerprint": message.fingerprint}
    header = Header(communicator.number, communicator.generation, **about)
    words = f"{message.words} at {site}"
    return header.message(0, 0, words.encode(), (len(message.view),))


def receive(communicator, message, peer, tag, outputs=(), closing=None):
    """Post a receive from a group rank, or from anybody (None); a Work."""
    communicator.usable(message.words)
    words = f"{message.words} at {call_site(3)}"
    work = MessageWork(communicator, "recv", message, words, peer, tag, outputs, closing)
    communicator.messages.receive(work.request)
    return _open(communicator, work)


def _open(communicator, work):
    """Nobody may ever wait for this work: have it driven all the same."""
    if not (work.over or communicator.messages.attended):
        never = float("inf")
        watch = Watchdog(communicator.view, "send and receive", never, anybody=True)
        communicator.messages.drive_in_background(watch, communicator.timeout)
    return work
