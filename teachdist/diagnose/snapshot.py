"""Where the ranks of a group are: a roll call.

Three ways to know where a rank is, from cheap to dear:

- its page of the board, if it is on this host: works also while it is stopped or holds the GIL;
- its *listener*, the thread of each rank that sleeps until somebody dials: it answers across hosts,
  and can say in which line of the user's code the main thread is, which no board knows;
- nothing: its process has ended, or it has not joined.

None of this happens while calls go well: a roll is called when a rank has waited for a second,
when it fails, and when somebody asks from outside (`doctor.py`).
"""

import contextlib
import time
from dataclasses import dataclass, replace

from teachdist.diagnose.inquiry import ask
from teachdist.links.board.layout import IDLE, IN_CALL
from teachdist.links.board.reader import positions_of

CALL, USER, GONE, DEAD, ABSENT = "call", "user", "left", "dead", "absent"
SILENT, CLOSED = "silent", "closed"
ASKING = 1.0  # seconds that asking all ranks may take together


@dataclass(frozen=True)
class Place:
    """Where one rank is, as seen from one group.

    rank: its number in the job. state: CALL (in a call of the group), USER (in the user's code),
    GONE (left the group), DEAD (its process has ended), ABSENT (never joined), SILENT (cannot be
    seen from here) or CLOSED (on another host, where nobody answers any more). position: its
    page. line: what its main thread is doing, if it was asked. elsewhere: the `Elsewhere` of a
    call of another group in which it is.
    """

    rank: int
    state: str
    position: object = None
    line: str = ""
    elsewhere: object = None

    @property
    def entry(self):
        """The call that the rank is in, or was in last; None before the first."""
        return self.position.entry if self.position is not None else None

    @property
    def calls(self):
        """The last collectives of the rank by number, those of the present generation."""
        if self.position is None:
            return {}
        latest = max((e.generation for e in self.position.calls.values()), default=0)
        return {n: e for n, e in self.position.calls.items() if e.generation == latest}


@dataclass(frozen=True)
class Elsewhere:
    """A call of another group. awaits: for which ranks of the job it waits, if it has long."""

    group: str
    entry: object
    awaits: tuple = ()

    @classmethod
    def of(cls, position):
        """From the page of that group."""
        ranks = position.about.get("ranks") or ()
        awaits = tuple(ranks[r] if r < len(ranks) else r for r in position.awaits)
        return cls(position.about.get("group", "?"), position.entry, awaits)


@dataclass
class View:
    """A group as one of its ranks sees it.

    global_ranks: the numbers of its ranks in the job. world: the View of the job's first group,
    where ranks can be found that have not joined this one; None for that group itself. inquiries:
    hears of other ranks' failures (see `inquiry.py`).
    """

    group: str
    peers: object
    page: object
    global_ranks: list
    world: object = None
    inquiries: object = None

    @property
    def rank(self):
        """This rank's number in the group."""
        return self.peers.rank

    def who(self, rank):
        """A rank of the group as a message names it: by its number in the job."""
        return f"rank {self.number(rank)}"

    def number(self, rank):
        """The number in the job of a rank of the group."""
        return self.global_ranks[rank] if 0 <= rank < len(self.global_ranks) else rank


def roll(view, ranks=None, ask_them=True):
    """The `Place` of each of `ranks` (of the group; default: all).

    ask_them: also dial ranks of other hosts, and ranks in user code to learn the line.
    """
    until = time.monotonic() + ASKING
    ranks = range(len(view.global_ranks)) if ranks is None else ranks
    return [_place(view, rank, until if ask_them else 0.0) for rank in ranks]


def _place(view, rank, until):
    number, peers = view.number(rank), view.peers
    card = None
    with contextlib.suppress(Exception):  # the store may be gone with the rank that hosts it
        card = peers.known(rank)
    if card is None:
        return _outside(view, rank, number, until)
    position = peers.position(rank)
    if peers.left(rank):
        unseen = position is None and peers.gone(rank)  # nobody knows how it ended
        return Place(number, DEAD if unseen else GONE, position)
    if peers.gone(rank):
        return Place(number, DEAD, position)
    if rank == peers.rank:
        return Place(number, USER if position.state == IDLE else CALL, position)
    if position is not None and position.state == IN_CALL:
        return Place(number, CALL, position)
    answer = ask(card, peers.rank, until - time.monotonic())
    if position is None:
        if answer is None:
            return Place(number, SILENT)
        if answer.refused:
            return Place(number, CLOSED)
        position = answer.page_of(view.group, rank)
        if position is None:
            return Place(number, GONE)
    others = positions_of(card.pid) if card.host == peers.host else answer.pages
    state = CALL if position.state == IN_CALL else USER
    line = answer.line if answer is not None and state == USER else ""
    return Place(number, state, position, line, _elsewhere(others, position))


def _outside(view, rank, number, until):
    """A rank that has not joined this group: is it in the job at all, and where?"""
    world = view.world
    if world is None or number not in world.global_ranks:
        return Place(number, ABSENT)
    there = _place(world, world.global_ranks.index(number), until)
    if there.state in (DEAD, SILENT, CLOSED):
        return replace(there, position=None)
    elsewhere = Elsewhere.of(there.position) if there.state == CALL else there.elsewhere
    return Place(number, ABSENT, None, there.line, elsewhere)


def _elsewhere(positions, here):
    """A call of another group that the same process is in."""
    for position in positions:
        if position.state == IN_CALL and position.about.get("id") != here.about.get("id"):
            return Elsewhere.of(position)
    return None
