"""Recovering: the ranks of a group meet anew after a failure, and everything made of it stays.

`recover`, called by all ranks, begins the group's next generation: new cards, new connections, the
same numbers of calls. Every process group, model and mesh that uses the group stays valid;
nobody destroys anything.

How ranks agree on the next generation, although some may know of no failure: each leaves a vote
in the store (its generation, its number of calls, why it failed if it did), waits for all votes,
and computes the same answer from them. If nobody failed, nothing changes. A rank that missed a
meeting, because it was interrupted, joins the one that is on; its vote makes all meet anew.

The votes are for one group; a failure in a group of two does not disturb the job's other groups.
A group that some rank has destroyed cannot meet any more: those who still have it are told so, and
go on without it.
"""

import gc
import json
import time
from dataclasses import asdict, replace

import torch.distributed as dist

from teachdist.backend.failure import failure_of
from teachdist.diagnose import judge, roll
from teachdist.diagnose.log import log
from teachdist.diagnose.places import CLOSED, DEAD, GONE
from teachdist.links import LinkError, Patience, PeerLost
from teachdist.links.page import Abort


def recover_all(members, meeting=None, timeout=30.0):
    """Meet anew in every group that has failed on some rank; whether there was one.

    All ranks must call it. meeting: a name for this meeting, never used before and the same on
    all ranks, from whoever calls all of them; None: the ranks count. timeout: seconds to wait for
    the others.
    """
    members = [member for member in members if not member.deserted]
    meetings = [_Meeting(member, meeting, timeout) for member in members]
    met = [meeting.hold() for meeting in meetings]
    if any(met):
        _reset_models()
    return any(met)


class _DesertedError(Exception):
    """A rank has destroyed the group, so it cannot meet."""


class _Meeting:
    """The ranks of one group agree whether to meet anew, and under which generation."""

    def __init__(self, member, name, timeout):
        self.member = member
        self.timeout = timeout
        self.store = member.shared
        self._hint_at = member.options.hint_after
        self.name = self._next() if name is None else name
        why = asdict(member.broken) if member.broken is not None else None
        vote = [member.generation, member.sequence, why]
        self.store.set(self._key(member.rank), json.dumps(vote))

    def _next(self):
        """The number of the meeting that is on, or of the next if this rank was at that one."""
        member = self.member
        latest = int(self.store.get("meeting")) if self.store.check(["meeting"]) else 0
        number = max(member.meetings + 1, latest)
        member.meetings = number
        if number > latest:
            self.store.compare_set("meeting", str(latest) if latest else "", str(number))
        return number

    def _key(self, rank):
        return f"vote/{self.name}/{rank}"

    def hold(self):
        """Wait for all votes and do what they say; whether the group met anew."""
        member = self.member
        try:
            self._wait()
        except _DesertedError as error:
            member.deserted = str(error)
            log.warning('group "%s" cannot meet anew: %s', member.title, error)
            return False
        keys = [self._key(rank) for rank in range(member.size)]
        votes = [json.loads(vote) for vote in self.store.multi_get(keys)]
        generations, numbers, reasons = zip(*votes, strict=True)
        reasons = [Abort(**why) for why in reasons if why is not None]
        if not reasons and len(set(generations)) == 1:
            return False
        first = min(reasons, key=lambda abort: abort.when, default=None)
        meet_anew(member, max(generations) + 1, max(numbers), first)
        return True

    def _wait(self):
        """In short sleeps, not in the store's own wait, which is deaf to Ctrl-C."""
        member = self.member
        missing, pause = list(range(member.size)), 0.0005
        patience = Patience(self.timeout, self._watch, "recover()")
        while missing := [rank for rank in missing if not self.store.check([self._key(rank)])]:
            time.sleep(pause)
            pause = min(pause * 1.5, 0.1)
            try:
                patience.over(missing)
            except LinkError as error:
                where = judge.whereabouts(roll(member.view, missing))
                raise dist.DistBackendError(
                    f'group "{member.title}": all ranks must call recover(): {error}. {where}.'
                ) from error

    def _watch(self, missing, waited):
        member = self.member
        hint = waited > self._hint_at
        places = roll(member.view, missing, doors=hint)
        # On another host, a rank without this group and one without a process may look alike; of
        # the second the job's first group tells.
        left = [place for place in places if place.state in (GONE, CLOSED)]
        if left and member.world is not None:
            raise _DesertedError(judge.whereabouts(left))
        for place in places:
            if place.state in (DEAD, GONE, CLOSED):
                raise PeerLost("a rank is gone", place.rank)
        if hint:
            self._hint_at *= 10
            where = judge.whereabouts(places)
            log.warning("%s waits in recover(). %s.", member.who(member.rank), where)


def meet_anew(member, generation, sequence, reason=None):
    """Leave the present generation behind because of `reason` (an `Abort`), and join the next."""
    if member.broken is None:  # what this rank still has under way must end, too
        reason = reason or failure_of(member, f'group "{member.title}" meets anew')
        member.broken = replace(reason, generation=member.generation)
        member.page.abort(member.broken)
    member.drain()
    member.hang_up()
    member.generation = generation
    member.sequence = sequence
    member.page.clear_abort()
    member.broken = None
    member.meet()


def _reset_models():
    """DistributedDataParallel must forget the backward pass that was cut short.

    Such a model is found by what it holds: a process group, and a reducer beside it.
    """
    groups = list(dist.distributed_c10d._world.pg_map)
    for holder in gc.get_referrers(*groups):
        holder = holder if isinstance(holder, dict) else getattr(holder, "__dict__", {})
        if isinstance(reducer := holder.get("reducer"), dist.Reducer):
            reducer._reset_state()
