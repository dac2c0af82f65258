"""A rank's membership in a group: numbers its calls, says what they are, waits for them."""

import torch.distributed as dist

from teachdist.backend.execution.options import chosen_by_user
from teachdist.backend.group.identity import title
from teachdist.backend.work import DONE
from teachdist.diagnose.call_site import call_site
from teachdist.links.board.layout import IN_CALL, Entry
from teachdist.rehearse import verdict
from teachdist.rehearse.errors import Released
from teachdist.rehearse.group import Arrival
from teachdist.rehearse.work import VirtualWork

KEPT = 40  # calls that are remembered, for the verdict


class Communicator:
    """Rank `rank` of a group. whose: the `Rank` in the job.

    history: {number: Entry} of the last collectives. last: the Entry of the last call, a send or
    receive included. broken: why calls end from now on, or None.
    """

    def __init__(self, job, whose, group, rank, name, timeout, options):
        self.job, self.whose, self.group, self.rank = job, whose, group, rank
        self.size, self.name, self.timeout, self.options = group.size, name, timeout, options
        self.global_ranks = list(group.ranks)
        self.sequence = 0
        self.mails = 0
        self.rolls = 0  # monitored barriers
        self.history = {}
        self.last = None
        self.broken = None
        self.left = False
        self.place = rank, group.size
        self.persistent = self
        group.communicators[rank] = self
        whose.communicators.append(self)

    def call(self, make, *arguments):
        """make(*arguments, rank, size): a `Call`."""
        return make(*arguments, *self.place)

    @property
    def title(self):
        """The group's name in messages: its description, if it was given one."""
        return title(self.name)

    def who(self, rank):
        """How to name a rank of this group in a message: by its number in the job."""
        if 0 <= rank < self.size:
            return f"rank {self.global_ranks[rank]}"
        return f"rank {rank} of the group"

    # -- collectives -----------------------------------------------------------------------

    def run(self, calls, asynchronous, opts, outputs=None, closing=None, inputs=()):
        """Run calls one after the other under one Work."""
        clock = self.whose.clock
        clock.enter()
        try:
            self.usable(calls[0].words)
            site = call_site(3)
            outputs = calls[0].outputs if outputs is None else outputs
            for call in calls:
                work = self._call(call, site, outputs, closing if call is calls[-1] else None)
                if call.then is not None:  # it tells the sizes of the next (sparse tensors)
                    work.wait()
        finally:
            clock.leave()
        if asynchronous:
            return work
        work.wait()
        return DONE

    def _call(self, call, site, outputs, closing):
        self.sequence += 1
        how = chosen_by_user(call.op, self.options) or ""
        entry = self.entry(f"{call.words} at {site}", self.sequence, _fingerprint(call), how)
        work = VirtualWork(outputs, self, entry.call, (self, entry), closing)
        work.inputs = call
        self.whose.clock.at(entry)
        arrival = Arrival(call, work, entry, self.whose.clock.time, self.whose.state.tracers)
        self.group.come(self.sequence, self.rank, arrival)
        return work

    def entry(self, call, number, fingerprint, how="", p2p=False):
        """Note a call as the last one of this rank in the group."""
        entry = Entry(0, IN_CALL, 0, number, self.whose.clock.time, fingerprint, call, p2p, how)
        self.last = entry
        if not p2p:
            self.history[number] = entry
            self.history.pop(number - KEPT, None)
        return entry

    # -- failing ---------------------------------------------------------------------------

    def usable(self, words):
        """Raise if the group has been left or has failed."""
        if self.left:
            raise dist.DistBackendError(
                f'{words}: {self.who(self.rank)} has left group "{self.title}"'
            )
        if self.broken is None:
            failed = self.job.failures.within(self.group)
            if failed is not None:
                self.broken = failed
        if self.broken is not None:
            words = f"{words} at {call_site(3)}"
            raise Released(f"{self.broken} ({self.who(self.rank)} was released from {words}.)")

    def gave_up(self, work, seconds, patient):
        """A wait has lasted too long: raise what torch documents, with who is where."""
        where = verdict.situation(self.job, work.subject)
        limit = f"{seconds:.0f}" if seconds >= 10 else f"{seconds:.2g}"
        if not patient:
            raise dist.DistBackendError(
                f"Work.wait: {work.words} not done within {limit} s; it goes on, wait again to see "
                f"its end. {where}"
            )
        number = "" if self.last is not None and self.last.p2p else f", call {self.sequence}"
        message = (
            f'group "{self.title}"{number}: {self.who(self.rank)} gave up in {work.words}: nothing '
            f"came within the timeout of {limit} s. {where}"
        )
        self.job.failures.break_group(self.group, message)
        raise dist.DistBackendError(message)


def _fingerprint(call):
    how = call.reducer.agreed if call.reducer is not None else ""
    return call.op, call.root, how, call.agree
