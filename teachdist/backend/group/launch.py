"""One launch on one store: two jobs that were given one address must not compute with each other.

A store knows ranks by their numbers. If two launches use one, rank 0 of the first finds rank 1 of
the second, and both compute, wrongly and without a word. Whoever serves the store can't tell; the
ranks can, when they meet:

- Each says on its card how many ranks its launch has, and what torchrun says of it. Whoever reads a
  card that differs in that refuses it, and as all read all cards, both sides are told.
- Two launches of one kind still have two rank 0s. So who comes as a rank that another process
  already is, alive and still in the job, is the second: it refuses to join, and tells the first,
  whose group ends with the same sentence at its next call.

What this can't see: a second launch on another host whose ranks never meet one of the first.
"""

import os
import time

from teachdist.diagnose.inquiry import tell
from teachdist.links.board.layout import LEFT, Abort
from teachdist.links.board.reader import BoardReader, alive
from teachdist.links.errors import LinkError
from teachdist.links.rendezvous.peers import Card

_TWO = "two launches use one store"
_ADVICE = "Give each launch an address, port or file of its own, or end the other one."


class OtherLaunch(LinkError):
    """A rank of another launch uses the same store."""


def about_this_launch():
    """What torchrun says of the launch, as far as its ranks must agree; "" without torchrun."""
    name = os.environ.get("TORCHELASTIC_RUN_ID", "")
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "")
    return f"run {name}, attempt {attempt}" if name else ""


def compare(communicator, card):
    """Raise OtherLaunch if a card was left by a rank of another launch."""
    mine = communicator.peers.known(communicator.rank)
    for theirs, ours, words in (
        (card.size, mine.size, "one of {} ranks"),
        (card.launch, mine.launch, "that torchrun calls {}"),
    ):
        if theirs != ours and theirs and ours:
            who = f"{communicator.who(card.rank)} (pid {card.pid} on {card.host.split()[0]})"
            text = (
                f"{_TWO}: this one is {words.format(ours)}, that of {who} is "
                f"{words.format(theirs)}. {_ADVICE}"
            )
            raise OtherLaunch(text, card.rank)


def refuse_second(communicator):
    """Raise OtherLaunch if another process, alive, is already this rank in the job.

    That process is told, so its group ends with the same sentence.
    """
    other = _already_there(communicator)
    if other is None:
        return
    me = communicator.who(communicator.rank)
    text = (
        f"{_TWO}: {me} is pid {other.pid} already, which is still in the job, "
        f"and pid {os.getpid()} comes as {me} as well. {_ADVICE}"
    )
    number = communicator.global_ranks[communicator.rank]
    tell([other], communicator.rank, Abort(0, number, text, time.time()))
    raise OtherLaunch(text, communicator.rank)


def _already_there(communicator):
    """The card of the process that was this rank in the life before, if it still is."""
    before, store = communicator.life - 1, communicator.store
    key = f"teachdist/{before}/card/0/{communicator.rank}"
    if before < 1 or not store.check([key]):
        return None
    try:
        card = Card.loads(store.get(key))
        here = communicator.peers.known(communicator.rank)
        if card.host != here.host or card.pid == here.pid or not alive(card.pid):
            return None
        position = BoardReader(card.board).read()
    except (OSError, ValueError, KeyError, TypeError):
        return None
    failed = position.abort is not None and not position.abort.message.startswith(_TWO)
    there = position.state != LEFT and not failed
    return card if there and position.about.get("id") == str(before) else None
