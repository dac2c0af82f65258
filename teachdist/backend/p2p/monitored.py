"""The monitored barrier: a barrier that says who did not come.

An ordinary barrier only hangs when a rank is missing. Here rank 0 takes the roll: each other rank
sends it a word and waits for an answer; rank 0 knows who has called and who has not, and
answers only when all have. If time runs out it tells those who came at once, so that all fail
together and nobody waits out its own time.

The two words are messages, under tags that users cannot have (negative ones). A tag counts the
group's collectives so far and the monitored barriers since, so that what is left over from a
barrier that failed cannot be taken for the next one.

Source: torch.distributed documentation, "monitored_barrier"; the texts are those users know
from gloo.
"""

import time
from datetime import timedelta

from teachdist.backend.p2p.requests import Message, receive, send
from teachdist.links.transport.header import number_of

_KIND = number_of("monitored barrier")
_FINE, _FAILED = 1, 2
_PER_CALL = 1 << 20


def monitored_barrier(communicator, seconds, wait_all_ranks):
    """Block until all ranks of the group have come, at most `seconds`; None.

    Raises RuntimeError; on rank 0 it names the ranks that are missing (the first one, or all with
    wait_all_ranks), on the others it says that they did come.
    """
    roll = _Roll(communicator, seconds)
    if communicator.rank == 0:
        _call_roll(roll, wait_all_ranks)
    else:
        _answer_roll(roll)


class _Roll:
    """One monitored barrier on one rank."""

    def __init__(self, communicator, seconds):
        self.communicator, self.seconds = communicator, seconds
        self.deadline = time.monotonic() + seconds
        self.tag = -1 - communicator.sequence * _PER_CALL - communicator.next_roll()

    def left(self):
        return timedelta(seconds=max(0.001, self.deadline - time.monotonic()))

    def message(self, word):
        view = memoryview(bytearray([word]))
        return Message(view, "monitored_barrier()", _KIND)


def _call_roll(roll, wait_all_ranks):
    communicator = roll.communicator
    if roll.seconds <= 0:
        raise RuntimeError(
            f"[Rank {communicator.rank}]: Rank {communicator.global_ranks[0]} timed out in "
            f"monitoredBarrier after {round(roll.seconds * 1000)} ms: it was given no time"
        )
    others = range(1, communicator.size)
    words = {rank: roll.message(0) for rank in others}
    works = {rank: receive(communicator, words[rank], rank, roll.tag) for rank in others}
    missing, why = [], None
    for rank, work in works.items():
        try:
            work.wait(roll.left())
        except RuntimeError as error:
            missing.append(rank)
            why = why or error
            if not wait_all_ranks:
                break
    answer = _FAILED if missing else _FINE
    for rank in others:
        if rank not in missing:
            send(communicator, roll.message(answer), rank, roll.tag)
    if missing:
        raise RuntimeError(_missing(communicator, missing, roll.seconds, why)) from why


def _answer_roll(roll):
    communicator = roll.communicator
    answer = roll.message(0)
    try:
        coming = receive(communicator, answer, 0, roll.tag)
        send(communicator, roll.message(_FINE), 0, roll.tag).wait(roll.left())
        coming.wait(roll.left())
        why = None
    except RuntimeError as error:
        why = error
    if why is None and answer.view[0] == _FINE:
        return
    me, first = communicator.global_ranks[communicator.rank], communicator.global_ranks[0]
    raise RuntimeError(
        f"Rank {me} successfully reached monitoredBarrier, but received errors while waiting for "
        f"send/recv from rank {first}. Please check rank {first} logs for faulty rank.\n "
        f"Original exception: \n{why or 'It said that another rank did not come in time.'}"
    ) from why


def _missing(communicator, missing, seconds, why):
    names = [str(communicator.global_ranks[rank]) for rank in missing]
    who = f"Rank {names[0]}" if len(names) == 1 else f"Ranks {', '.join(names)}"
    return (
        f"[Rank {communicator.rank}]: {who} failed to pass monitoredBarrier in "
        f"{round(seconds * 1000)} ms\n Original exception: \n{why}"
    )
