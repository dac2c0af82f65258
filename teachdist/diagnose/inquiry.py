"""Asking a rank where it is, and telling ranks that this one has failed.

Every process of a job has a thread that sleeps until somebody dials its listener (see
`links/rendezvous/listener.py`). It stays awake to nothing else, so it answers while the main thread
is blocked in a call, on this host or another. Two things can be said to it:

- INQUIRY: where are you? The answer is JSON: all pages of the board of that process, and the
  line in which its main thread is.
- NEWS: I have failed, and this is why. It is kept where the rank's waits look once a tick.

Whoever dials must know the group's secret, which only the job's store tells. Answers are read
with bounds on length and time.
"""

import contextlib
import json
import select
import socket
import struct
import threading
import time
from dataclasses import asdict, dataclass

from teachdist.diagnose import stacks
from teachdist.diagnose.call_site import main_thread
from teachdist.links.board.layout import Abort, Entry, Position
from teachdist.links.board.writer import own_pages
from teachdist.links.errors import LinkError
from teachdist.links.rendezvous.listener import INQUIRY, NEWS, dial

MOST = 1 << 22  # bytes of an answer
_NEWS = struct.Struct("<IidBI")  # generation, culprit, time.time(), whole?, bytes
_NEWS_MOST = 1500
_PATIENCE = 0.5


@dataclass(frozen=True)
class Answer:
    """What a rank answered. refused: nobody listens there any more."""

    pages: tuple = ()
    line: str = ""
    stacks: str = ""
    refused: bool = False

    def page_of(self, group, rank):
        """The position of a rank in a group, or None."""
        for position in self.pages:
            if position.rank == rank and position.about.get("group") == group:
                return position
        return None


class Inquiries:
    """What this rank answers for one group; `Peers.answer` is its `answer`."""

    def __init__(self):
        self.news = None  # an Abort that another rank has told
        self.told = None  # called with it at once, on a thread of its own

    def answer(self, purpose, rank, sock):
        """Called on the listener's thread; takes over the socket (True)."""
        # Reading and writing may block for a moment, and the listener must stay free.
        serve = self._tell if purpose == INQUIRY else self._listen
        threading.Thread(target=serve, args=(sock,), name="teachdist-answer", daemon=True).start()
        return True

    def _tell(self, sock):
        with contextlib.suppress(OSError), sock:
            sock.settimeout(_PATIENCE)
            sock.sendall(_dumps())
            sock.shutdown(socket.SHUT_WR)

    def _listen(self, sock):
        with contextlib.suppress(OSError, ValueError), sock:
            data = _read_all(sock, time.monotonic() + _PATIENCE, _NEWS.size + _NEWS_MOST)
            generation, culprit, when, whole, length = _NEWS.unpack_from(data)
            text = data[_NEWS.size : _NEWS.size + min(length, _NEWS_MOST)].decode(errors="replace")
            if self.news is None or self.news.generation < generation:
                self.news = Abort(generation, culprit, text, when, bool(whole))
                if self.told is not None:
                    self.told(self.news)


def ask(card, rank, limit):
    """Ask the process of `card` where it is, within `limit` seconds; None if it does not say."""
    limit = min(limit, _PATIENCE)
    if limit <= 0:
        return None
    try:
        sock = dial(card.address, card.secret, 0, INQUIRY, rank, limit)
    except LinkError as error:
        refused = isinstance(error.__cause__, ConnectionRefusedError)
        return Answer(refused=True) if refused else None
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError), sock:
        said = _read_all(sock, time.monotonic() + limit, MOST)
        # Whoever hangs up without a word does not know the secret any more: it has left the group.
        return _loads(said) if said else Answer()
    return None


def tell(cards, me, abort):
    """Tell the ranks with these cards of this `Abort`, all at once, within a second.

    me: the rank of the group that tells.
    """
    text = abort.message.encode()[:_NEWS_MOST]
    head = (abort.generation, abort.culprit, abort.when, abort.whole, len(text))
    said = _NEWS.pack(*head) + text

    def say(card):
        with (
            contextlib.suppress(LinkError, OSError),
            dial(card.address, card.secret, 0, NEWS, me, _PATIENCE) as sock,
        ):
            sock.settimeout(_PATIENCE)
            sock.sendall(said)
            sock.shutdown(socket.SHUT_WR)
            sock.recv(1)  # until the other side has read it and hangs up

    threads = []
    for card in cards:
        threads.append(threading.Thread(target=say, args=(card,), daemon=True))
        threads[-1].start()
    until = time.monotonic() + 1.0
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))


def _dumps():
    now = time.monotonic()
    pages = []
    for page in own_pages():
        position = page.read()
        shown = asdict(position)
        for entry in (shown["entry"], *shown["calls"].values()):
            if entry:
                entry["since"] = now - entry["since"]  # as an age: clocks of hosts differ
        pages.append(shown)
    return json.dumps({"pages": pages, "line": main_thread(), "stacks": stacks.own()}).encode()


def _loads(data):
    said = json.loads(data)
    pages = tuple(_position(page) for page in said["pages"])
    return Answer(pages, str(said["line"]), str(said["stacks"]))


def _position(shown):
    calls = {int(number): _entry(entry) for number, entry in shown.pop("calls").items()}
    entry = shown.pop("entry")
    abort = shown.pop("abort")
    awaits = tuple(shown.pop("awaits"))
    return Position(
        entry=entry and _entry(entry),
        abort=abort and Abort(**abort),
        awaits=awaits,
        calls=calls,
        **shown,
    )


def _entry(shown):
    entry = Entry(**shown)
    object.__setattr__(entry, "since", time.monotonic() - entry.since)
    return entry


def _read_all(sock, until, most):
    """Everything up to the end of the connection, at most `most` bytes, until `until`."""
    sock.setblocking(False)
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    data = b""
    while len(data) < most:
        if not poll.poll(max(0.0, until - time.monotonic()) * 1000):
            raise OSError("no answer in time")
        more = sock.recv(min(1 << 16, most - len(data)))
        if not more:
            break
        data += more
    return data
