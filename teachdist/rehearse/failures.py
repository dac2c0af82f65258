"""Who has failed, and how that frees the others.

As on real ranks: a rank that raises ends every group that it is in, so nobody waits for what will
never come; ranks whose calls do not fit together all get one sentence that names them; and when
nobody can go on, all who wait are told who waits for whom.
"""

import torch

from teachdist.diagnose.call_site import raised_at
from teachdist.diagnose.verdict import mismatch as words_of_mismatch
from teachdist.rehearse.errors import Hang, Mismatch, Released, Stopped, Verdict
from teachdist.rehearse.verdict import hang


class Failures:
    """The failures of a job. words: {rank: what it says}, in the order of failing.

    verdict: the first sentence about ranks that waited in vain or did not agree; or None.
    """

    def __init__(self, job):
        self._job = job
        self.words = {}
        self.verdict = None

    def failed(self, rank, error):
        """A rank's program has failed: free those who wait for it."""
        rank.error = error
        first = next(iter(self.words.values()), None)
        if isinstance(error, (Released, Verdict)) and (first or self.verdict):
            return
        lines = str(error).strip().splitlines()
        why = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
        if ("CUDA" in why or "NVIDIA" in why) and not torch.cuda.is_available():
            why += ' (there is no GPU here; rehearse with device_as="cpu")'
        if site := raised_at(error):
            why = f"{why.rstrip('.')}, at {site}"
        self.words[rank.number] = f"{rank} failed: {why}"
        for communicator in rank.communicators:
            self.break_group(communicator.group, self.words[rank.number])

    def recover(self):
        """After a failure: every group meets anew; what was under way is forgotten."""
        if not (self.words or self.verdict):
            return
        self.words.clear()
        self.verdict = None
        for rank in self._job.ranks:
            rank.due.clear()
        for group in self._job.groups():
            group.recover()

    def within(self, group):
        """What a failed rank of the group says, or None."""
        for number, words in self.words.items():
            if number in group.ranks:
                return words
        return None

    def break_group(self, group, message):
        """End a group: all calls of it that wait end with the message."""
        for communicator in group.communicators.values():
            communicator.broken = communicator.broken or message
        works = [a.work for meeting in group.meetings.values() for a in meeting.values()]
        for desk in group.desks.values():
            works += [one.work for one in (*desk.posted, *desk.unexpected) if not one.work.over]
        group.meetings.clear()
        group.desks.clear()
        for work in works:
            who = work.communicator.who(work.communicator.rank)
            error = Released(f"{message} ({who} was released from {work.words}.)")
            work.settle(0.0, 0.0, None, error)

    def mismatch(self, group, number, entries):
        """All ranks have come to a meeting, with calls that do not fit together."""
        calls = {m.whose.number: dict(m.history) for m in group.communicators.values()}
        by_rank = dict(zip(group.ranks, entries, strict=True))
        title = next(iter(group.communicators.values())).title
        text = words_of_mismatch(title, number, by_rank, calls)
        for communicator in group.communicators.values():
            communicator.broken = communicator.broken or text
        self.verdict = self.verdict or text
        return Mismatch(text)

    def stuck(self):
        """Nobody can go on."""
        blocked = self._job.scheduler.blocked()
        mains = [actor for actor in blocked if actor is actor.rank.actor]
        if not mains:  # only helpers are left, like a daemon's threads when a process ends
            for actor in blocked:
                self._job.scheduler.kill(actor, Stopped())
            return
        first = next(iter(self.words.values()), None)
        if first is not None:
            for actor in blocked:
                self._job.scheduler.kill(actor, Released(f"{first} ({actor.rank} was released.)"))
            return
        try:
            words = hang(self._job)
        except Exception as error:  # noqa: BLE001  whatever is wrong here, the ranks must be freed
            words = f"Nobody can go on. (Who waits for whom could not be found out: {error!r})"
        self.verdict = self.verdict or words
        for actor in blocked:
            self._job.scheduler.kill(actor, Hang(words))
