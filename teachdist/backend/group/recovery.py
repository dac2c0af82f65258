"""Recovering: the ranks of a group meet anew after a failure, and everything made of it stays.

`recover`, called by all ranks, begins the group's next generation: new cards, new connections, the
same numbers of calls. Every process group, model and mesh that uses the group stays valid;
nobody destroys anything.

How ranks agree on the next generation, although some may know of no failure: each leaves a vote
in the store (its generation, its number of calls, why it failed if it did), waits for all votes,
and computes the same answer from them. If nobody failed, nothing changes. A rank that missed a
meeting, because it was interrupted, joins the one that is on; its vote makes all meet anew.

The votes are for one group; a failure in a group of two does not disturb the job's other groups.
A group that some rank has destroyed, or had not made when it failed, cannot meet: those who have it
are told so, and go on without it. How they know: a rank votes in the job's first group last, so
who has voted there and not here has no such group.

Ranks that failed on the way to a new group have made fewer groups than the others, and would from
then on give different names to what they make together. So the votes in the job's first group also
carry these counts, and all go on from the highest.
"""

import json
import time
from dataclasses import asdict, replace

import torch.distributed as dist

from teachdist.backend.group.abort import failure_of
from teachdist.backend.group.identity import Counts
from teachdist.backend.torch_patches import reset_models
from teachdist.diagnose import roll, verdict
from teachdist.diagnose.log import log
from teachdist.diagnose.snapshot import DEAD, GONE
from teachdist.links import Deadline, LinkError, PeerLost
from teachdist.links.board.layout import Abort
from teachdist.words import ranks_words


def recover_all(communicators, meeting=None, timeout=30.0):
    """Meet anew in every group that has failed on some rank; whether there was one.

    All ranks must call it. meeting: a name for this meeting, never used before and the same on
    all ranks, from whoever calls all of them; None: the ranks count. timeout: seconds to wait for
    the others.
    """
    communicators = [communicator for communicator in communicators if not communicator.deserted]
    communicators.sort(key=lambda communicator: communicator.world is None)
    meetings = [_Meeting(communicator, meeting, timeout) for communicator in communicators]
    met = [meeting.hold(meetings[-1]) for meeting in meetings]
    if any(met):
        reset_models()
    return any(met)


_IS = {False: "is", True: "are"}


class _DesertedError(Exception):
    """A rank is not in the group, so it cannot meet."""


class _Meeting:
    """The ranks of one group agree whether to meet anew, and under which generation."""

    def __init__(self, communicator, name, timeout):
        self.communicator = communicator
        self.timeout = timeout
        self.store = communicator.shared
        self._hint_at = communicator.options.hint_after
        self.name = self._next() if name is None else name
        why = asdict(communicator.broken) if communicator.broken is not None else None
        counts = Counts.of(communicator).dumps() if communicator.world is None else None
        vote = [communicator.generation, communicator.sequence, why, counts]
        self.store.set(self._key(communicator.rank), json.dumps(vote))

    def _next(self):
        """The number of the meeting that is on, or of the next if this rank was at that one."""
        communicator = self.communicator
        latest = int(self.store.get("meeting")) if self.store.check(["meeting"]) else 0
        number = max(communicator.meetings + 1, latest)
        communicator.meetings = number
        if number > latest:
            self.store.compare_set("meeting", str(latest) if latest else "", str(number))
        return number

    def _key(self, rank):
        return f"vote/{self.name}/{rank}"

    def hold(self, of_the_job):
        """Wait for all votes and do what they say; whether the group met anew.

        of_the_job: the meeting of the job's first group.
        """
        communicator = self.communicator
        try:
            self._wait(of_the_job if of_the_job.communicator is communicator.world else None)
        except _DesertedError as error:
            communicator.deserted = str(error)
            log.warning('group "%s" cannot meet anew: %s', communicator.title, error)
            return False
        keys = [self._key(rank) for rank in range(communicator.size)]
        votes = [json.loads(vote) for vote in self.store.multi_get(keys)]
        generations, numbers, reasons, counts = zip(*votes, strict=True)
        reasons = [Abort(**why) for why in reasons if why is not None]
        if not reasons and len(set(generations)) == 1:
            return False
        if communicator.world is None:
            Counts.go_on_from(communicator, counts)
        first = min(reasons, key=lambda abort: abort.when, default=None)
        meet_anew(communicator, max(generations) + 1, max(numbers), first)
        return True

    def voted(self, rank):
        """Whether a rank of the group has voted in this meeting."""
        return self.store.check([self._key(rank)])

    def _without(self, missing, of_the_job):
        """Those of the missing who have voted in the job's meeting: they have no such group."""
        theirs, numbers = of_the_job.communicator.global_ranks, self.communicator.global_ranks
        there = [r for r in missing if of_the_job.voted(theirs.index(numbers[r]))]
        return [rank for rank in there if not self.voted(rank)]

    def _wait(self, of_the_job):
        """In short sleeps, not in the store's own wait, which is deaf to Ctrl-C."""
        communicator = self.communicator
        missing, pause = list(range(communicator.size)), 0.0005
        deadline = Deadline(self.timeout, self._watch, "recover()")
        while missing := [rank for rank in missing if not self.voted(rank)]:
            if of_the_job is not None and (without := self._without(missing, of_the_job)):
                numbers = [communicator.view.number(rank) for rank in without]
                raise _DesertedError(f"{ranks_words(numbers)} {_IS[len(without) > 1]} not in it")
            time.sleep(pause)
            pause = min(pause * 1.5, 0.1)
            try:
                deadline.over(missing)
            except LinkError as error:
                where = verdict.whereabouts(roll(communicator.view, missing))
                raise dist.DistBackendError(
                    f'group "{communicator.title}": all ranks must call recover(): '
                    f"{error}. {where}."
                ) from error

    def _watch(self, missing, waited):
        communicator = self.communicator
        hint = waited > self._hint_at
        places = roll(communicator.view, missing, ask_them=hint)
        for place in places:
            if place.state == DEAD or (place.state == GONE and communicator.world is None):
                raise PeerLost("a rank is gone", place.rank)
        if hint:
            self._hint_at *= 10
            where = verdict.whereabouts(places)
            log.warning("%s waits in recover(). %s.", communicator.who(communicator.rank), where)


def meet_anew(communicator, generation, sequence, reason=None):
    """Leave the present generation behind because of `reason` (an `Abort`), and join the next."""
    if communicator.broken is None:  # what this rank still has under way must end, too
        reason = reason or failure_of(communicator, f'group "{communicator.title}" meets anew')
        communicator.broken = replace(reason, generation=communicator.generation)
        communicator.page.abort(communicator.broken)
    communicator.drain()
    communicator.hang_up()
    communicator.generation = generation
    communicator.sequence = sequence
    communicator.page.clear_abort()
    communicator.broken = None
    communicator.meet()
