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
from functools import partial

import torch.distributed as dist

from teachdist.backend import failure
from teachdist.backend.choosing import Chooser
from teachdist.backend.executor import execute
from teachdist.backend.identity import identify, title
from teachdist.backend.plan import plan
from teachdist.backend.turns import Turns
from teachdist.backend.work import MailWork, Work
from teachdist.diagnose import Door, View, Watch, call_site, stacks
from teachdist.diagnose.survey import leave_card
from teachdist.links import Exchange, Header, LinkError, Links, Mail, Patience, Roster
from teachdist.links.board import IDLE, IN_CALL, Page
from teachdist.links.header import POINT_TO_POINT, number_of
from teachdist.links.mail import Letter
from teachdist.links.switchboard import MAIL
from teachdist.tracing import recorder

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
        self.broken = None  # the `Abort` that ended this generation
        self.left = False
        self.meetings = 0
        self.title = name
        self._identity = identity = identify(self)
        self.life = identity.life
        self.shared = dist.PrefixStore(f"teachdist/{identity.key}", identity.store)
        self.page = Page(rank, identity.about(self))
        self.world = identity.world
        self._turns = Turns(f"teachdist-{name}")
        self._numbering = threading.Lock()  # numbers are given in the order of turns
        self._number = number_of(identity.key)
        self._fingerprints = {}
        self._chooser = Chooser(self.shared, rank, size, options)
        self._rolls = (-1, 0)
        stacks.prepare()
        self.meet()

    def meet(self):
        """Leave this rank's card for the others, under the present generation."""
        self.roster = Roster(self.shared, self.rank, self.size, self.generation, self.page)
        door = Door()
        self.roster.answer = door.answer
        world = self.world.view if self.world is not None else None
        self.view = View(self.title, self.roster, self.page, self.global_ranks, world, door)
        self._card_file = leave_card(self.roster.known(self.rank), self._identity.key)
        self.links = Links(self.roster, self.page)
        self.mail = Mail(self.roster, self.roster.sockets(MAIL))
        self._hosts = None

    def _introduce(self):
        """Once torch has registered the group: show the description that it was given."""
        self.title = self.view.group = title(self.name)
        self.page.describe(self._identity.about(self))

    def drain(self):
        """Wait until what this rank has under way is over."""
        self._turns.drain()

    def hang_up(self):
        """Close all connections of this generation."""
        self.mail.close()
        self.links.close()
        self.roster.close()

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

            mine = not asynchronous and self._turns.mine()
            if not mine:
                self._turns.submit(job)
        if mine:
            self._turns.here(job)
        if not asynchronous:
            try:
                work.wait()
            except KeyboardInterrupt as error:
                # The links stay: the group's own thread may be waiting on them.
                raise failure.fail(self, error, numbered[0][0], calls[0].words) from None
        return work

    def _execute_all(self, numbered, limit):
        for sequence, call in numbered:
            self._execute(sequence, call, limit)

    def _execute(self, sequence, call, limit):
        same = self._fingerprint(call, "")
        self.page.write(IN_CALL, self.generation, sequence, call.words, same)
        watch = Watch(self.view, call.words, self.options.hint_after, (sequence, same))
        patience = Patience(limit, watch, call.words)
        try:
            if self._hosts is None:
                self._hosts = self.roster.hosts(patience)
                self.roster.watch_all(patience)
                self._introduce()
            name = self._chooser.algorithm(call, self._hosts)
            todo = plan(call.op, name, self.rank, self.size, call.root, self._hosts)
            header = Header(
                self._number,
                self.generation,
                sequence,
                fingerprint=self._fingerprint(call, name),
            )
            observer = recorder(
                op=call.op,
                words=call.words,
                algorithm=name,
                group=self.name,
                sequence=sequence,
                rank=self.rank,
                size=self.size,
                nbytes=call.nbytes,
                root=call.root,
                hosts=self._hosts,
            )
            exchange = Exchange(header, call.words, patience, todo.width)
            execute(call, todo, self.links, exchange, observer)
            if observer is not None:
                observer.done(partial(self._chooser.topology, self._hosts))
        except (LinkError, KeyboardInterrupt) as error:
            raise self._fail(error, sequence, call.words) from error
        finally:
            self.page.write(IDLE, self.generation, sequence, call.words, same)

    def _fingerprint(self, call, algorithm):
        how = call.reducer.name if call.reducer is not None else ""
        key = (call.op, call.root, how, call.agree, algorithm)
        if key not in self._fingerprints:
            self._fingerprints[key] = number_of(repr(key))
        return self._fingerprints[key]

    # -- point to point ----------------------------------------------------------------------

    def send(self, parcel, peer, tag):
        """Post a send of a `Parcel` to a group rank; a Work."""
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
                error = failure.explain(self, error, None, words)
            if error is None and parcel.landed is not None:
                parcel.landed()
            work.finish(error)

        def drive(limit):
            if letter.done:
                return
            place = self.page.begin_mail(self.generation, words)
            try:
                mail.wait(letter, self._patience(seconds(limit, self.timeout), words))
            except LinkError as error:
                raise failure.explain(self, error, None, words) from error
            finally:
                self.page.end_mail(place)

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
        watch = Watch(self.view, "point-to-point operations", float("inf"))
        self.mail.drive_in_background(watch, self.timeout)

    def _patience(self, limit, words):
        return Patience(limit, Watch(self.view, words, self.options.hint_after), words)

    # -- failing and leaving ------------------------------------------------------------------

    def _usable(self, words):
        if self.left or self.broken is not None:
            failure.usable(self, words)

    def _fail(self, error, sequence, words):
        explained = failure.fail(self, error, sequence, words)
        self.links.close()
        return explained

    def release(self, message):
        """Free every other rank from waiting: their calls end with this message."""
        failure.release(self, failure.failure_of(self, message))

    def forget(self):
        """In a forked child: this membership is the parent's. Close the copies of its sockets."""
        self.broken = failure.failure_of(
            self,
            f"this process is a fork of {self.who(self.rank)}, and a group's connections cannot be "
            "shared",
        )
        self.roster.abandon()

    def leave(self):
        """Leave the group: finish what is queued, let sends go out, hang up."""
        if self.left or self.pid != os.getpid():
            return
        self._turns.stop()
        self.left = True
        self.mail.close(FLUSH if self.broken is None else 0.0)
        self.page.leave()
        self.links.close()
        self.roster.close()
        self.page.close()
        if self._card_file is not None:
            self._card_file.unlink(missing_ok=True)


def seconds(given, default):
    """A time-out in seconds; None, zero or negative mean the group's own."""
    if isinstance(given, timedelta):
        given = given.total_seconds()
    return given if given and given > 0 else default
