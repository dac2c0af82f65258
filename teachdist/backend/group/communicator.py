"""A communicator: one rank in one group, with everything that belongs to this membership.

It numbers the calls, writes the board, picks the algorithm, has the executor run it (on the
caller's thread when the caller waits anyway, else on the group's worker), and turns failures
into the exceptions that torch.distributed documents, in words that name the ranks.

A failure ends the *generation*: half-sent messages cannot be taken back, so all links are cut,
which is also what tells the others. The group itself survives: `recover` meets anew, under the
next generation's cards, and every process group, model and mesh that uses it stays valid.
"""

import os
from datetime import timedelta
from functools import partial

import torch.distributed as dist

from teachdist import tracing
from teachdist.backend.calls.persistent import Persistent
from teachdist.backend.execution import observed
from teachdist.backend.execution.call_order import CallOrder
from teachdist.backend.execution.dispatch import Routes
from teachdist.backend.execution.executor import execute
from teachdist.backend.execution.options import chosen_by_user
from teachdist.backend.execution.selection import Selection
from teachdist.backend.group import abort
from teachdist.backend.group.identity import identify, title
from teachdist.backend.group.late_mismatch import LateMismatch
from teachdist.backend.group.launch import about_this_launch
from teachdist.backend.work import DONE, Work
from teachdist.diagnose import Inquiries, View, Watchdog, call_site, poison, stacks
from teachdist.diagnose.log import log
from teachdist.diagnose.survey import leave_card
from teachdist.links import Deadline, LinkError, Links, Messages, Peers
from teachdist.links.board.writer import IN_CALL, BoardWriter
from teachdist.links.rendezvous.listener import P2P
from teachdist.links.transport.header import number_of

FLUSH = 5.0  # seconds that unfinished sends get when a rank leaves


class Communicator:
    """Rank `rank` of the `size` ranks of a group; `global_ranks` are their numbers in the job."""

    def __init__(self, store, rank, size, name, global_ranks, timeout, options):
        self.store, self.rank, self.size, self.name = store, rank, size, name
        self.global_ranks = list(global_ranks) or list(range(size))
        self.timeout = timeout
        self.options = options
        self.pid = os.getpid()
        self.others = [r for r in range(size) if r != rank]
        self.sequence = 0  # collectives so far: the first is call 1
        self.generation = 0
        self.broken = None  # the `Abort` that ended this generation
        self.left = False
        self.deserted = ""  # why the group can never meet again
        self.meetings = 0
        self.title = name
        self._identity = identity = identify(self)
        self.life = identity.life
        self.shared = dist.PrefixStore(f"teachdist/{identity.key}", identity.store)
        self.page = BoardWriter(rank, identity.about(self))
        self.world = identity.world
        self.call_order = CallOrder(f"teachdist-{name}")
        self.number = number_of(identity.key)
        self.persistent = Persistent((rank, size), self._right)
        self._selection = Selection(self.shared, rank, size, options)
        self._rolls = (-1, 0)
        stacks.prepare()
        self.meet()

    def meet(self):
        """Leave this rank's card for the others, under the present generation."""
        self.peers = Peers(
            self.shared, self.rank, self.size, self.generation, self.page, about_this_launch()
        )
        inquiries = Inquiries()
        inquiries.told = self._told
        self.peers.answer = inquiries.answer
        world = self.world.view if self.world is not None else None
        self.view = View(self.title, self.peers, self.page, self.global_ranks, world, inquiries)
        self._card_file = leave_card(self.peers.known(self.rank), self._identity.key)
        self.links = Links(self.peers, self.page)
        self.messages = Messages(self.peers, self.peers.sockets(P2P))
        self.routes = Routes(self.rank, self.size, self._selection, self.number, self.generation)
        self.persistent.forget()
        self.late_mismatch = LateMismatch()
        meets = (self.who(self.rank), self.title, self.size, self.generation)
        log.info('%s meets in group "%s" of %d ranks, generation %d', *meets)

    def _introduce(self):
        """Once torch has registered the group: show the description that it was given."""
        self.title = self.view.group = title(self.name)
        self.page.describe(self._identity.about(self))

    def drain(self):
        """Wait until what this rank has under way is over."""
        self.call_order.drain()

    def hang_up(self):
        """Close all connections of this generation."""
        self.messages.close()
        self.links.close()
        self.peers.close()

    def who(self, rank):
        """How to name a rank of this group in a message: by its number in the job."""
        if 0 <= rank < len(self.global_ranks):
            return f"rank {self.global_ranks[rank]}"
        return f"rank {rank} of the group"

    # -- collectives -------------------------------------------------------------------------

    def run(self, calls, asynchronous, opts, outputs=None, closing=None, inputs=()):
        """Run calls one after the other under one Work.

        opts: torch's options of the call, with its timeout. inputs: what must stay alive until
        they are over. closing: called then, before anybody is told.
        """
        if self.left or self.broken is not None:
            abort.usable(self, calls[0].words)
        site = call_site(3)
        for call in calls:
            if call.route is None:
                self._choose(call)
        here = not asynchronous and closing is None
        with self.call_order.lock:
            first = self.sequence + 1
            self.sequence += len(calls)
            here = here and self.call_order.mine()
            if not here:
                work = Work(calls[0].outputs if outputs is None else outputs, closing)
                if asynchronous and poison.on():
                    work.poisoned = self._poisoned(calls)
                self.call_order.submit(lambda: self._job(work, first, calls, site, opts, inputs))
        if here:
            try:
                self._in_turn(first, calls, site, opts)
            finally:
                self.call_order.over()
            return DONE
        if not asynchronous:
            try:
                work.wait()
            except KeyboardInterrupt as error:
                # The links stay: the group's own thread may be waiting on them.
                words = f"{calls[0].words} at {site}"
                raise abort.fail(self, error, first, words) from None
        return work

    def _poisoned(self, calls):
        """Poison what the calls will write; they themselves work on what is under it."""
        pending = []
        for call in calls:
            reads_only = {"broadcast": self.rank == call.root, "reduce": self.rank != call.root}
            if not reads_only.get(call.op, False):
                pending += call.outputs
        poisoned = poison.Poisoned(pending)
        for call in calls:
            call.write_back = [(poisoned.real(t), values) for t, values in call.write_back]
        return poisoned

    def _job(self, work, first, calls, site, opts, inputs):
        try:
            self._in_turn(first, calls, site, opts)
        except BaseException as error:  # noqa: BLE001  it travels to whoever waits
            work.finish(error)
        else:
            work.finish()
        del inputs  # not before

    def _in_turn(self, sequence, calls, site, opts):
        for call in calls:
            self._execute(sequence, call, site, opts)
            sequence += 1

    def _execute(self, sequence, call, site, opts):
        if call.route is None and self.routes.hosts is not None:  # they were not known before
            call.route = self.routes.of(call)
        words, told, same = call.said.get(site) or self._say(call, site)
        if self.left or self.broken is not None:
            abort.usable(self, words)
        if self.late_mismatch.pending and self.late_mismatch.due(call.route):
            self.late_mismatch.look_back(self)
        self.page.write(IN_CALL, self.generation, sequence, told, same)
        patient = partial(self._deadline, sequence, words, same, opts)
        try:
            if call.route is None:
                self._first_call(patient())
                call.route = self.routes.of(call)
                told = self._say(call, site)[1]
                self.page.write(IN_CALL, self.generation, sequence, told, same)
            call.route.exchange.begin(sequence, told, patient)
            if observed.is_on():
                observed.run(self, sequence, call, words, self._selection.topology)
            else:
                execute(call, call.route.plan, self.links, call.route.exchange)
            if not call.route.plan.listens and self.size > 1:
                self.late_mismatch.note(sequence, same, words)
        except KeyboardInterrupt as error:
            self.failed(error, sequence, words)
            raise
        except LinkError as error:
            raise self.failed(error, sequence, words) from error
        except Exception as error:  # the others must not wait for what will never come
            self.release(f"{self.who(self.rank)} failed in {words}: {error!r}")
            raise
        finally:
            self.page.over(sequence)

    def _choose(self, call):
        """Settle the algorithm now: `use` holds where the call is made, not where it is run."""
        if self.routes.hosts is None:
            call.chosen = chosen_by_user(call.op, self.options) or ""
        else:
            call.route = self.routes.of(call)

    def _say(self, call, site):
        """A call's words, the same with its algorithm for the board, and its fingerprint."""
        words = f"{call.words} at {site}"
        if call.route is None:
            return words, words, self.routes.same(call)
        said = call.said[site] = words, words + call.route.mark, call.route.same
        return said

    def _deadline(self, sequence, words, same, opts):
        """How long a call may wait; made only for those that have to."""
        watcher = partial(Watchdog, self.view, words, self.options.hint_after, (sequence, same))
        limit = seconds(getattr(opts, "timeout", None), self.timeout)
        return Deadline(limit, None, words, watcher)

    def _first_call(self, deadline):
        """All ranks are in the group's first collective: get to know each other."""
        self.routes.hosts = self.peers.hosts(deadline)
        self.peers.watch_all(deadline)
        self._introduce()
        self.links.meet(deadline, self._selection.memory)

    def _right(self, call):
        """Whether a kept call may run by its old script."""
        return call.route.fresh and not (tracing.active() or poison.on())

    # -- point to point ----------------------------------------------------------------------

    def next_roll(self):
        """The number of this monitored barrier since the last collective."""
        since, count = self._rolls
        count = count + 1 if since == self.sequence else 0
        self._rolls = (self.sequence, count)
        return count

    # -- failing and leaving ------------------------------------------------------------------

    def usable(self, words):
        """Raise if the group has been left or has failed."""
        if self.left or self.broken is not None:
            abort.usable(self, words)

    def failed(self, error, sequence, words):
        """End the generation because of an error in a call; the exception to raise."""
        explained = abort.fail(self, error, sequence, words)
        self.links.close()
        return explained

    def release(self, message):
        """Free every other rank from waiting: their calls end with this message."""
        abort.release(self, abort.failure_of(self, message))

    def _told(self, news):
        """Only a second launch tells a rank that it is the culprit itself (`launch.py`)."""
        if news.culprit == self.global_ranks[self.rank]:
            abort.release(self, news)

    def forget(self):
        """In a forked child: this membership is the parent's. Close the copies of its sockets."""
        self.broken = abort.failure_of(
            self,
            f"this process is a fork of {self.who(self.rank)}, and a group's connections cannot be "
            "shared",
        )
        self.peers.abandon()

    def leave(self):
        """Leave the group: finish what is queued, let sends go out, hang up."""
        if self.left or self.pid != os.getpid():
            return
        self.call_order.stop()
        self.left = True
        self.persistent.forget()
        log.info('%s leaves group "%s"', self.who(self.rank), self.title)
        if self.broken is None:
            self.links.part(Deadline(FLUSH))
            self.late_mismatch.last_look(self)
        self.messages.close(FLUSH if self.broken is None else 0.0)
        self.page.leave()
        self.links.close()
        self.peers.close()
        self.page.close()
        if self._card_file is not None:
            self._card_file.unlink(missing_ok=True)
        # A FileStore removes its file when the last rank lets go of it: now, not when Python
        # comes round to collecting cycles.
        self.store = self.shared = self.peers.store = None
        self._identity = self._selection = self.routes = None


def seconds(given, default):
    """A time-out in seconds; None, zero or negative mean the group's own."""
    if isinstance(given, timedelta):
        given = given.total_seconds()
    return given if given and given > 0 else default
