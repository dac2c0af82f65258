"""The monitored barrier: a barrier that says who did not come.

An ordinary barrier only hangs when a rank is missing. Here rank 0 takes the roll: each other rank
sends it a word and waits for an answer; rank 0 knows who has called and who has not, and
answers only when all have. If time runs out it tells those who came who did not, so that all fail
together, with one list. They wait a moment longer than they were told to, for that answer.

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
_GRACE = 1.0  # seconds after its own time in which a rank still hears who is missing
_PER_CALL = 1 << 20


def monitored_barrier(communicator, seconds, wait_all_ranks):
    """Block until all ranks of the group have come, at most `seconds`; None.

    Raises RuntimeError that names the ranks which are missing (the first one, or all with
    wait_all_ranks) by their numbers in the job, on every rank that has come.
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

    def left(self, more=0.0):
        return timedelta(seconds=max(0.001, self.deadline + more - time.monotonic()))

    def message(self, missing=()):
        """A word with a bit for each rank of the group that is missing."""
        bits = sum(1 << rank for rank in missing)
        size = self.communicator.size // 8 + 1
        view = memoryview(bytearray(bits.to_bytes(size, "little")))
        return Message(view, "monitored_barrier()", _KIND)


def _call_roll(roll, wait_all_ranks):
    communicator = roll.communicator
    if roll.seconds <= 0:
        me = communicator.global_ranks[0]
        raise RuntimeError(
            f"[Rank {me}]: Rank {me} timed out in monitoredBarrier after "
            f"{round(roll.seconds * 1000)} ms: it was given no time"
        )
    others = range(1, communicator.size)
    words = {rank: roll.message() for rank in others}
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
    for rank in others:
        if rank not in missing:
            send(communicator, roll.message(missing), rank, roll.tag)
    if missing:
        raise RuntimeError(missed(communicator, missing, roll.seconds, why)) from why


def _answer_roll(roll):
    communicator = roll.communicator
    answer = roll.message()
    try:
        coming = receive(communicator, answer, 0, roll.tag)
        send(communicator, roll.message(), 0, roll.tag).wait(roll.left())
        coming.wait(roll.left(_GRACE))
        why = None
    except RuntimeError as error:
        why = error
    bits = int.from_bytes(answer.view, "little")
    missing = [rank for rank in range(communicator.size) if bits >> rank & 1]
    if why is None and not missing:
        return
    raise RuntimeError(came(communicator, missing, roll.seconds, why)) from why


def came(communicator, missing, seconds, why=None):
    """What a rank says that has come, while others have not: gloo's words, and who they are."""
    me, first = communicator.global_ranks[communicator.rank], communicator.global_ranks[0]
    told = _who(communicator, missing, seconds) if missing else why
    return (
        f"Rank {me} successfully reached monitoredBarrier, but received errors while waiting for "
        f"send/recv from rank {first}. Please check rank {first} logs for faulty rank.\n "
        f"Original exception: \n{told}"
    )


def missed(communicator, missing, seconds, why):
    """What rank 0 of the group says of those who have not come."""
    me = communicator.global_ranks[communicator.rank]
    return f"[Rank {me}]: {_who(communicator, missing, seconds)}\n Original exception: \n{why}"


def _who(communicator, missing, seconds):
    names = [str(communicator.global_ranks[rank]) for rank in missing]
    who = f"Rank {names[0]}" if len(names) == 1 else f"Ranks {', '.join(names)}"
    return f"{who} failed to pass monitoredBarrier in {round(seconds * 1000)} ms"
