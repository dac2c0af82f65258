"""A member: one rank in one group, with everything that belongs to this membership.

It numbers the calls, writes the board, picks the algorithm, has the executor run it (on the
caller's thread when the caller waits anyway, else on the group's worker), and turns failures
into the exceptions that torch.distributed documents, in words that name the ranks.

A failure ends the *generation*: half-sent messages cannot be taken back, so all links are cut,
which is also what tells the others. The group itself survives: `recover` meets anew, under the
next generation's cards, and every process group, model and mesh that uses it stays valid.
"""

import os
from datetime import timedelta

import torch.distributed as dist

from teachdist.backend import failure
from teachdist.backend.executor import execute
from teachdist.backend.identity import identify, title
from teachdist.backend.options import algorithm_for
from teachdist.backend.plan import plan
from teachdist.backend.work import MailWork, Work, Worker
from teachdist.diagnose import Door, View, Watch, call_site, stacks
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
        self._worker = Worker(f"teachdist-{name}")
        self._number = number_of(identity.key)
        self._fingerprints = {}
        stacks.prepare()
        self.meet()

    def meet(self):
        """Leave this rank's card for the others, under the present generation."""
        self.roster = Roster(self.shared, self.rank, self.size, self.generation, self.page)
        door = Door()
        self.roster.answer = door.answer
        world = self.world.view if self.world is not None else None
        self.view = View(self.title, self.roster, self.page, self.global_ranks, world, door)
        self.links = Links(self.roster, self.page)
        self.mail = Mail(self.roster, self.roster.sockets(MAIL))
        self._hosts = None

    def _introduce(self):
        """Once torch has registered the group: show the description that it was given."""
        self.title = self.view.group = title(self.name)
        self.page.describe(self._identity.about(self))

    def drain(self):
        """Wait until what this rank has under way is over."""
        self._worker.drain()

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

    def run(self, calls, asynchronous, timeout, outputs=None):
        """Run calls one after the other under one Work."""
        self._usable(calls[0].words)
        outputs = calls[0].outputs if outputs is None else outputs
        work = Work(outputs)
        site = call_site()
        numbered = []
        for call in calls:
            call.words = f"{call.words} at {site}"
            numbered.append((self.sequence, call))
            self.sequence += 1
        limit = seconds(timeout, self.timeout)

        if not asynchronous:
            self._worker.drain()
            self._usable(calls[0].words)
            self._execute_all(numbered, limit)
            work.finish()
            return work

        def job():
            try:
                self._usable(calls[0].words)
                self._execute_all(numbered, limit)
            except BaseException as error:  # noqa: BLE001  it travels to whoever waits
                work.finish(error)
            else:
                work.finish()

        self._worker.submit(job)
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
            name = algorithm_for(call.op, call.nbytes, self.size, self._hosts, self.options)
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
            )
            exchange = Exchange(header, call.words, patience, todo.width)
            execute(call, todo, self.links, exchange, observer)
            if observer is not None:
                observer.done()
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

    def send(self, view, peer, tag, words, outputs, fingerprint):
        """Post a send of bytes to a group rank; a Work."""
        letter, work = self._letter("send", peer, tag, view, words, outputs, fingerprint)
        header = Header(
            self._number, self.generation, kind=POINT_TO_POINT, tag=tag, fingerprint=fingerprint
        )
        self.mail.send(header, letter.words.encode(), letter)
        return work

    def receive(self, view, peer, tag, words, outputs, fingerprint, landed):
        """Post a receive from a group rank, or from anybody (None); a Work.

        landed: called when the bytes are there, before the Work is done.
        """
        letter, work = self._letter("recv", peer, tag, view, words, outputs, fingerprint, landed)
        self.mail.receive(letter)
        return work

    def _letter(self, kind, peer, tag, view, words, outputs, fingerprint, landed=None):
        self._usable(words)
        words = f"{words} at {call_site()}"
        mail = self.mail

        def settle(letter):
            work.source = letter.source
            error = letter.error
            if isinstance(error, LinkError):
                error = failure.explain(self, error, None, words)
            if error is None and landed is not None:
                landed()
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

        letter = Letter(peer, tag, view, kind, settle, fingerprint)
        letter.words = words
        work = MailWork(outputs, drive)
        return letter, work

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

    def leave(self):
        """Leave the group: finish what is queued, let sends go out, hang up."""
        if self.left or self.pid != os.getpid():
            return
        self._worker.stop()
        self.left = True
        self.mail.close(FLUSH if self.broken is None else 0.0)
        self.page.leave()
        self.links.close()
        self.roster.close()
        self.page.close()


def seconds(given, default):
    """A time-out in seconds; None, zero or negative mean the group's own."""
    if isinstance(given, timedelta):
        given = given.total_seconds()
    return given if given and given > 0 else default
