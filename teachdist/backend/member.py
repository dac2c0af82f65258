"""A member: one rank in one group, with everything that belongs to this membership.

It numbers the calls, writes the board, picks the algorithm, has the executor run it (on the
caller's thread when the caller waits anyway, else on the group's worker), and turns failures
into the exceptions that torch.distributed documents, in words that name the ranks.

A failure ends the *generation*: half-sent messages cannot be taken back, so all links are cut,
which is also what tells the others. The group itself survives: `recover` meets anew, under the
next generation's cards, and every process group, model and mesh that uses it stays valid.
"""

import os
import threading
from datetime import timedelta

import torch.distributed as dist

from teachdist.backend.executor import execute
from teachdist.backend.options import algorithm_for
from teachdist.backend.plan import plan
from teachdist.backend.turns import Turns
from teachdist.backend.work import MailWork, Work
from teachdist.diagnose import Watch, call_site, mismatch, whereabouts
from teachdist.links import (
    Header,
    Interrupted,
    LinkError,
    Links,
    Mail,
    Mismatch,
    Patience,
    PeerLost,
    Roster,
    TimedOut,
)
from teachdist.links.board import IDLE, IN_CALL, LEFT, Page
from teachdist.links.header import POINT_TO_POINT, number_of
from teachdist.links.mail import Letter
from teachdist.links.switchboard import MAIL

FLUSH = 5.0  # seconds that unfinished sends get when a rank leaves


class Member:
    """Rank `rank` of the `size` ranks of a group; `global_ranks` are their numbers in the job."""

    def __init__(self, store, rank, size, name, global_ranks, timeout, options):
        self.store, self.rank, self.size, self.name = store, rank, size, name
        self.global_ranks = list(global_ranks) or list(range(size))
        self.timeout = timeout
        self.options = options
        self.pid = os.getpid()
        self.sequence = 0
        self.generation = 0
        self.broken = None
        self.left = False
        self.page = Page(rank)
        # The same group name may be used again on the same store (destroy, then init): each
        # time counts for every rank, and old cards must not answer.
        self._incarnation = store.add(f"joined/{rank}", 1)
        self._turns = Turns(f"teachdist-{name}")
        self._numbering = threading.Lock()  # numbers are given in the order of turns
        self._number = number_of(f"{name}/{self._incarnation}")
        self._fingerprints = {}
        self._rolls = (-1, 0)
        self._meet()

    def _meet(self):
        store = dist.PrefixStore(f"teachdist/{self._incarnation}", self.store)
        self.roster = Roster(store, self.rank, self.size, self.generation, self.page)
        self.links = Links(self.roster)
        self.mail = Mail(self.roster, self.roster.sockets(MAIL))
        self._hosts = None

    def who(self, rank):
        """How to name a rank of this group in a message: by its number in the job."""
        if 0 <= rank < len(self.global_ranks):
            return f"rank {self.global_ranks[rank]}"
        return f"rank {rank} of the group"

    # -- collectives -------------------------------------------------------------------------

    def run(self, calls, asynchronous, timeout, outputs=None, closing=None):
        """Run calls one after the other under one Work.

        closing: called when they are over, before anybody is told.
        """
        self._usable(calls[0].words)
        work = Work(calls[0].outputs if outputs is None else outputs, closing)
        site = call_site()
        limit = seconds(timeout, self.timeout)
        with self._numbering:
            numbered = []
            for call in calls:
                call.words = f"{call.words} at {site}"
                numbered.append((self.sequence, call))
                self.sequence += 1

            def job():
                try:
                    self._usable(calls[0].words)
                    self._execute_all(numbered, limit)
                except BaseException as error:  # noqa: BLE001  it travels to whoever waits
                    work.finish(error)
                else:
                    work.finish()

            if asynchronous:
                self._turns.submit(job)
                return work
            mine = self._turns.mine()
            if not mine:
                self._turns.submit(job)
        if mine:
            self._turns.here(job)
        try:
            work.wait()
        except KeyboardInterrupt as error:
            raise self.fail(error, numbered[0][0], calls[0].words) from None
        return work

    def _execute_all(self, numbered, limit):
        for sequence, call in numbered:
            self._execute(sequence, call, limit)

    def _execute(self, sequence, call, limit):
        self.page.write(IN_CALL, self.generation, sequence, call.words)
        watch = Watch(self.roster, self.who, call.words, self.options.hint_after)
        patience = Patience(limit, watch, call.words)
        try:
            if self._hosts is None:
                self._hosts = self.roster.hosts(patience)
                self.roster.watch_all(patience)
            name = algorithm_for(call.op, call.nbytes, self.size, self._hosts, self.options)
            todo = plan(call.op, name, self.rank, self.size, call.root, self._hosts)
            header = Header(
                self._number,
                self.generation,
                sequence,
                fingerprint=self._fingerprint(call, name),
            )
            execute(call, todo, self.links, header, patience)
        except (LinkError, KeyboardInterrupt) as error:
            raise self.fail(error, sequence, call.words) from error
        finally:
            self.page.write(IDLE, self.generation, sequence, call.words)

    def _fingerprint(self, call, algorithm):
        how = call.reducer.name if call.reducer is not None else ""
        key = (call.op, call.root, how, call.agree, algorithm)
        if key not in self._fingerprints:
            self._fingerprints[key] = number_of(repr(key))
        return self._fingerprints[key]

    # -- point to point ----------------------------------------------------------------------

    def send(self, parcel, peer, tag):
        """Post a send of a parcel to a group rank; a Work."""
        letter, work = self._letter("send", parcel, peer, tag)
        header = Header(
            self._number,
            self.generation,
            kind=POINT_TO_POINT,
            tag=tag,
            fingerprint=parcel.fingerprint,
        )
        self.mail.send(header, letter.words.encode(), letter)
        self._leave_to_background(letter)
        return work

    def receive(self, parcel, peer, tag):
        """Post a receive from a group rank, or from anybody (None); a Work."""
        letter, work = self._letter("recv", parcel, peer, tag)
        self.mail.receive(letter)
        self._leave_to_background(letter)
        return work

    def next_roll(self):
        """The number of this monitored barrier since the last collective."""
        since, count = self._rolls
        count = count + 1 if since == self.sequence else 0
        self._rolls = (self.sequence, count)
        return count

    def _letter(self, kind, parcel, peer, tag):
        self._usable(parcel.words)
        words = f"{parcel.words} at {call_site()}"
        mail = self.mail

        def settle(letter):
            work.source = letter.source
            error = letter.error
            if isinstance(error, LinkError):
                error = self._explain(error, None, words)
            if error is None and parcel.landed is not None:
                parcel.landed()
            work.finish(error)

        def drive(limit):
            if letter.done:
                return
            self.page.write(IN_CALL, self.generation, self.sequence, words)
            try:
                mail.wait(letter, self._patience(seconds(limit, self.timeout), words))
            except LinkError as error:
                raise self._explain(error, None, words) from error
            finally:
                self.page.write(IDLE, self.generation, self.sequence, words)

        letter = Letter(peer, tag, parcel.view, kind, settle, parcel.fingerprint)
        letter.words = words
        work = MailWork(parcel.outputs, drive, parcel.closing)
        return letter, work

    def _leave_to_background(self, letter):
        """Nobody may ever wait for this letter: have it driven all the same."""
        if not letter.done:
            self.background()

    def background(self):
        """Have open sends and receives driven though nobody waits for them."""
        watch = Watch(self.roster, self.who, "point-to-point operations", float("inf"))
        self.mail.drive_in_background(watch, self.timeout)

    def _patience(self, limit, words):
        return Patience(limit, Watch(self.roster, self.who, words, self.options.hint_after), words)

    # -- failing, recovering, leaving ----------------------------------------------------------

    def _usable(self, words):
        if self.left:
            raise dist.DistBackendError(f'{words}: group "{self.name}" was destroyed on this rank')
        if self.broken is not None:
            raise dist.DistBackendError(
                f'{words}: group "{self.name}" ended with an error: {self.broken} Destroy the '
                "group and make it anew (a notebook does so by itself before the next cell)."
            )

    def fail(self, error, sequence, words):
        """End this generation because of `error`; the exception to raise."""
        explained = self._explain(error, sequence, words)
        culprit = getattr(error, "rank", None)
        if isinstance(error, KeyboardInterrupt):
            message = f"{self.who(self.rank)} was interrupted in {words}."
            culprit = self.rank
        else:
            message = str(explained)
        self.release(message, self.rank if culprit is None else culprit)
        return explained

    def release(self, message, culprit=None):
        """Free every other rank from waiting: their calls end with this message."""
        if self.broken is None and not self.left:
            self.broken = message
            self.page.abort(self.rank if culprit is None else culprit, message)
            self.links.close()

    def _explain(self, error, sequence, words):
        """The documented exception for a failure, with the sentence that says what happened."""
        here = f'group "{self.name}"' + ("" if sequence is None else f", call {sequence}")
        me = self.who(self.rank)
        if isinstance(error, KeyboardInterrupt):
            return error
        if isinstance(error, PeerLost):
            error = self._reason_for(error)
        if isinstance(error, Interrupted):
            return dist.DistBackendError(f"{error}")
        if isinstance(error, Mismatch):
            if sequence is None:
                return dist.DistBackendError(f"{here}: {me} is in {words}: {error}: {error.theirs}")
            theirs = error.theirs or str(error)
            return dist.DistBackendError(
                mismatch(
                    self.name,
                    sequence,
                    self.global_ranks[self.rank],
                    words,
                    self.global_ranks[error.rank],
                    theirs,
                )
            )
        if isinstance(error, TimedOut):
            where = whereabouts(error.ranks, self.roster, self.who)
            return dist.DistBackendError(f"{here}: {me} gave up in {words}: {error}. {where}.")
        return dist.DistNetworkError(f"{here}: {me} is in {words}: {error}")

    def _reason_for(self, lost):
        """A connection that ended may be a rank's way of releasing us: then say its words."""
        try:
            Watch(self.roster, self.who, "", float("inf"))([], 0.0)
        except LinkError as reason:
            return reason
        if lost.rank is not None and self.roster.gone(lost.rank):
            return PeerLost(f"the process of {self.who(lost.rank)} has ended", lost.rank)
        return lost

    def forget(self):
        """In a forked child: this membership is the parent's. Close the copies of its sockets."""
        self.broken = (
            f"this process is a fork of {self.who(self.rank)}, and a group's connections cannot "
            "be shared; call init_process_group in the child."
        )
        self.roster.abandon()

    def recover(self):
        """Meet anew after a failure: every rank of the group must do so."""
        self._turns.drain()
        self.mail.close()
        self.links.close()
        self.roster.close()
        self.generation += 1
        self.page.clear_abort()
        self.page.write(IDLE, self.generation, self.sequence, "")
        self.broken = None
        self._meet()

    def leave(self):
        """Leave the group: finish what is queued, let sends go out, hang up."""
        if self.left or self.pid != os.getpid():
            return
        self._turns.stop()
        self.left = True
        self.mail.close(FLUSH if self.broken is None else 0.0)
        self.page.write(LEFT, self.generation, self.sequence, "")
        self.links.close()
        self.roster.close()
        self.page.close()


def seconds(given, default):
    """A time-out in seconds; None, zero or negative mean the group's own."""
    if isinstance(given, timedelta):
        given = given.total_seconds()
    return given if given and given > 0 else default
