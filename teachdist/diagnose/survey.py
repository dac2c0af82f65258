"""Seeing a job from outside: all groups and all ranks, though none of them is stopped for it.

Where to look:

- *this host*: every process of this user that keeps a board, found in /proc without any help;
- *a store*: the job's own TCPStore has a card of every rank of every group, on whatever host;
  with the secret on it a rank's listener can be dialled;
- *a directory*: ranks that run under TEACHDIST_JOB=DIR leave copies of their cards there, for jobs
  whose store cannot be reached.
"""

import contextlib
import json
import os
import re
import socket
import time
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist

from teachdist.diagnose.inquiry import ask
from teachdist.diagnose.snapshot import (
    ABSENT,
    CALL,
    CLOSED,
    DEAD,
    GONE,
    SILENT,
    USER,
    Elsewhere,
    Place,
)
from teachdist.links.board.layout import IN_CALL, LEFT
from teachdist.links.board.reader import alive, positions_of
from teachdist.links.rendezvous.address import this_host
from teachdist.links.rendezvous.peers import Card

JOB = "TEACHDIST_JOB"
_NOBODY = (1 << 32) - 1  # "rank" of a caller that is none
_CARD = re.compile(r"(?:.*/)?teachdist/(.+)/card/(\d+)/(\d+)$")


@dataclass
class Seen:
    """One rank of a group: its place, and its process. stacks: as text, if they came along."""

    place: Place
    pid: int = 0
    host: str = ""
    stacks: str = ""


@dataclass
class Group:
    """One group of a job; `seen` has a `Seen` for each of its ranks, in order."""

    job: str
    name: str
    seen: list

    @property
    def places(self):
        """The place of each rank."""
        return [one.place for one in self.seen]


class Survey:
    """What has been seen so far; `groups()` puts it in order.

    A group is known by its job and by an id that is its own within the job.
    """

    def __init__(self):
        self._seen = {}  # (job, id) -> {rank: Seen}
        self._about = {}  # (job, id) -> what its pages say of it
        self._visited = {}  # (host, pid) -> the state of ranks that have no page there

    def host(self):
        """Look at every process of this host."""
        for pid in os.listdir("/proc") if os.path.isdir("/proc") else ():
            if pid.isdigit():
                self._pages(None, positions_of(pid), int(pid), this_host())
        return self

    def cards(self, cards, job=""):
        """Visit the owners of one job's cards: [(id of the group, Card)]."""
        for group, card in cards:
            process = (card.host, card.pid)
            if process not in self._visited:
                self._visited[process] = self._visit(job, card)
            unseen = Seen(Place(card.rank, self._visited[process]), card.pid, card.host)
            self._seen.setdefault((job, group), {}).setdefault(card.rank, unseen)
        return self

    def _visit(self, job, card):
        here = card.host == this_host()
        if here and not alive(card.pid):
            return DEAD
        answer = ask(card, _NOBODY, 0.5)
        if here:
            line = answer.line if answer is not None else ""
            self._pages(job, positions_of(card.pid), card.pid, card.host, line)
            return GONE
        if answer is None:
            return SILENT
        self._pages(job, answer.pages, card.pid, card.host, answer.line, answer.stacks)
        return CLOSED if answer.refused else GONE

    def _pages(self, job, pages, pid, host, line="", stacks=""):
        for position in pages:
            about = position.about
            if "id" not in about:
                continue
            key = (about.get("job", "") if job is None else job, about["id"])
            state = GONE if position.state == LEFT else CALL if position.state == IN_CALL else USER
            place = Place(about["number"], state, position, line if state == USER else "")
            self._about[key] = about
            self._seen.setdefault(key, {})[position.rank] = Seen(place, pid, host, stacks)

    def groups(self):
        """A `Group` for each that has a rank with a page, in order of their names.

        Groups that all have left are of interest only if there are no others.
        """
        busy = {}  # (host, pid) -> its page of a group that it is in a call of
        for seen in self._seen.values():
            for one in seen.values():
                if one.place.state == CALL:
                    busy[one.host, one.pid] = one.place.position
        there = {
            key
            for key, ranks in self._seen.items()
            if any(one.place.state != GONE for one in ranks.values())
        }
        known = sorted(self._about.items())
        shown = [(key, about) for key, about in known if key in there] or known
        return [self._group(key, about, busy) for key, about in shown]

    def _group(self, key, about, busy):
        size, ranks = about["size"], about.get("ranks")
        numbers = ranks if ranks is not None and len(ranks) == size else range(size)
        everybody = []
        for rank, number in enumerate(numbers):
            one = self._seen[key].get(rank) or Seen(Place(number, ABSENT))
            if one.place.position is None:
                one = Seen(Place(number, one.place.state), one.pid, one.host)
            if one.place.state == USER and (one.host, one.pid) in busy:
                elsewhere = Elsewhere.of(busy[one.host, one.pid])
                one = replace(one, place=replace(one.place, elsewhere=elsewhere))
            everybody.append(one)
        return Group(about.get("job") or "", about["group"], everybody)


# -- cards ---------------------------------------------------------------------------------------


def open_store(address, timeout=5.0):
    """Connect to a job's TCPStore at "host:port"."""
    host, _, port = address.rpartition(":")
    if not port.isdigit():
        raise ValueError(f"a store's address is host:port, got {address!r}")
    _wait_for_listener(host, int(port), timeout)
    limit = timedelta(seconds=timeout)
    return dist.TCPStore(host, int(port), None, False, limit, wait_for_workers=False)


def _wait_for_listener(host, port, seconds):
    """Wait until somebody listens there; torch's store would say in pages that nobody does."""
    until = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection((host, port), seconds).close()
        except (OSError, OverflowError) as error:
            if time.monotonic() > until or not isinstance(error, ConnectionRefusedError):
                raise ValueError(
                    f"no store listens at {host}:{port} ({error}); the job's is at its MASTER_ADDR "
                    "and MASTER_PORT"
                ) from None
            time.sleep(0.1)
        else:
            return


def cards_of_store(store):
    """The cards in a job's store, those of the latest generations: [(id of the group, Card)]."""
    latest = {}
    for key in store.list_keys():
        found = _CARD.match(key)
        if found is not None:
            member, generation = (found[1], int(found[3])), int(found[2])
            latest[member] = max(latest.get(member, (-1, "")), (generation, key))
    return [
        (group, Card.loads(store.get(key.removeprefix("/"))))
        for (group, _), (_, key) in sorted(latest.items())
    ]


def cards_in(directory):
    """The cards that ranks under TEACHDIST_JOB have left: [(id of the group, Card)].

    Those of ranks that were killed, and could not do so themselves, are removed.
    """
    cards = []
    for file in sorted(Path(directory).glob("*.card")):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            said = json.loads(file.read_text())
            card = Card.loads(said["card"])
            if card.host == this_host() and not alive(card.pid):
                file.unlink()
            cards.append((said["group"], card))
    return cards


def leave_card(card, group):
    """Under TEACHDIST_JOB=DIR: put a copy of this rank's card there; its file, or None."""
    directory = os.environ.get(JOB)
    if not directory:
        return None
    name = re.sub("[^0-9A-Za-z]+", "-", group)
    file = Path(directory) / f"{name}-{card.rank}.card"
    partial = file.with_suffix(f".{os.getpid()}")
    try:
        Path(directory).mkdir(exist_ok=True)
        partial.touch(mode=0o600)  # the card has the group's secret on it
        partial.write_text(json.dumps({"group": group, "card": card.dumps().decode()}))
        partial.replace(file)
    except OSError as error:
        raise ValueError(
            f"{JOB}={directory}: expected a directory in which every rank can write, got: {error}"
        ) from error
    return file
