"""The scheduler: many threads, one of them running at a time, and a baton that they pass.

Every rank is a thread of this process. A thread runs until it must wait; then it passes the baton
to one that can go on. Nothing is ever run beside something else, so a run can be repeated, state
that belongs to a whole process can be exchanged at a switch (`state.py`), and when nobody can go on
that is known at once and for certain: it is a hang, not a guess after half an hour.

    rank 0   ====compute====|wait                              |=== ...
    rank 1                  |====compute====|wait              |
    rank 2                                  |==compute==|done  |

Threads and not greenlets: torch keeps the state of autograd and autocast per thread, so every rank
has its own. Free threads would be no faster, as Python runs one at a time anyway. A switch costs
some 5 us.

Whatever could go one way or another is asked of `choose`: who runs next, which message is taken.
So one place decides about orders, by a seed, by a list given, or always the first.

Time stands in two forms. A rank's own clock (`clock.py`) says how late it is there. What is due at
a certain time (the end of a sleep, a time-out) waits in a heap of alarms. With clocks that are the
same in every run (`timed`) the earliest goes first, as in any discrete event simulation. Measured
clocks never are the same, and the order must not depend on them: there who came first runs first,
and alarms ring only when nobody else can run.
"""

import contextlib
import heapq
import itertools
import random
import threading
from collections import deque

from teachdist.rehearse.actors import Actor, Signal, Waiting
from teachdist.rehearse.errors import Stopped
from teachdist.rehearse.watchdog import Watchdog


class Scheduler:
    """Runs the threads of all ranks.

    seed: 0 always takes the first of several ways; other seeds other ways. timed: whether clocks
    are the same in every run, so that they may decide. swap: called as swap(rank) when the baton
    goes to another rank. stuck: called when nobody can go on; it must let somebody go on.
    """

    def __init__(self, swap, stuck, seed=0, timed=False):
        self.timed = timed
        self.running = None
        self.switches = 0
        self.choices = []
        self.time = 0.0  # of the last alarm, where clocks must not decide
        self.failure = None
        self._random = random.Random(seed) if seed else None
        self.chooser = None  # called as chooser(kind, options), instead of the seed
        self.adopted = False  # whether a rank has started a thread
        self.quiet = None  # called when nobody can run; whether it has let somebody
        self._swap, self._stuck = swap, stuck
        self._ready = deque()
        self._heap = []  # timed: (clock, number, actor) of those who can run
        self._alarms = []  # (time, number, actor, waiting)
        self._urgent = 0  # alarms that are not only a safety net
        self._numbers = itertools.count()
        self._actors = {}  # thread -> actor
        self._alive = 0
        self._finished = threading.Event()

    # -- choices ---------------------------------------------------------------------------

    def choose(self, kind, options):
        """The place in `options` of the one to take; `kind` says what is decided."""
        if self.chooser is not None:
            return self.chooser(kind, options)
        if len(options) == 1 or self._random is None:
            return 0
        taken = self._random.randrange(len(options))
        self.choices.append((kind, len(options), taken))
        return taken

    # -- threads ---------------------------------------------------------------------------

    def me(self):
        """The actor whose thread this is, or None: it is no rank's."""
        return self._actors.get(threading.get_ident())

    def add(self, rank, target, name):
        """A thread of `rank` that will run target() when it gets the baton."""
        actor = Actor(self, rank, name)
        actor.thread = threading.Thread(target=self._run, args=(actor, target), name=name)
        actor.thread.daemon = True
        self._alive += 1
        self._finished.clear()
        actor.thread.start()
        self.ready(actor)
        return actor

    def adopt(self, rank, thread, start):
        """Let a thread that the user has made run as one of `rank`'s; start() starts it."""
        actor = Actor(self, rank, thread.name)
        actor.thread = thread
        self.adopted = True
        run = thread.run
        thread.run = lambda: self._run(actor, run)
        self._alive += 1
        start()
        self.ready(actor)
        return actor

    def _run(self, actor, target):
        actor.baton.acquire()
        self._actors[threading.get_ident()] = actor
        try:
            self._begin(actor)
            actor.rank.state.enter_thread()
            target()
        except Stopped:
            pass
        finally:
            actor.over = True
            actor.ended.notify()
            self._actors.pop(threading.get_ident(), None)
            self._alive -= 1
            actor.rank.clock.stop()
            self._pass_on()

    def run(self):
        """Run all threads until they are over; Ctrl-C stops them. From a thread of nobody."""
        if not self._alive:
            return
        self._pass_on()
        watchdog = Watchdog(self)
        try:
            while not self._finished.wait(0.5):
                watchdog.look()
        except BaseException as error:
            self.stop(error)
            while not self._finished.wait(0.5):
                watchdog.interrupt()
            raise

    def stop(self, error):
        """Have every thread end at its next wait."""
        self.failure = error
        for actor in list(self._actors.values()):
            actor.killed = actor.killed or Stopped()

    # -- waiting ---------------------------------------------------------------------------

    def ready(self, actor):
        """`actor` can run, from now on."""
        if actor.queued or actor.over:
            return
        actor.queued = True
        if self.timed:
            heapq.heappush(self._heap, (actor.rank.clock.time, next(self._numbers), actor))
        else:
            self._ready.append(actor)

    def now(self):
        """The time from which time-outs of the running thread count."""
        return self.running.rank.clock.now() if self.timed else self.time

    def wait(self, signal, ready, seconds=None, what=None, patient=False, subject=None):
        """Wait until ready(), which is asked whenever `signal` is notified.

        seconds: how long at most; patient: that is only a safety net, so a hang is told before.
        what: words for it. subject: what the wait is about, for the verdict.

        Returns whether it is ready.
        """
        if ready():
            return True
        me = self.running
        clock = me.rank.clock
        until = None if seconds is None else clock.now() + max(seconds, 0.0)
        waiting = me.wait = Waiting(what, patient, subject, until)
        if seconds is not None:
            self._alarm(seconds, me, waiting)
        try:
            while True:
                signal.waiting.append(me)
                self._switch(me)
                if ready():
                    clock.advance(waiting.news[0], "wait", what, waiting.news[1])
                    return True
                if waiting.rang:
                    clock.advance(until, "sleep", what)
                    return False
        finally:
            me.wait = None
            if seconds is not None and not patient and not waiting.rang:
                self._urgent -= 1
            with contextlib.suppress(ValueError):
                signal.waiting.remove(me)

    def _alarm(self, seconds, actor, waiting):
        due = self.now() + max(seconds, 0.0)
        if len(self._alarms) > 1000 + 4 * len(self._actors):  # most were for waits that are over
            self._alarms = [alarm for alarm in self._alarms if alarm[2].wait is alarm[3]]
            heapq.heapify(self._alarms)
        heapq.heappush(self._alarms, (due, next(self._numbers), actor, waiting))
        self._urgent += not waiting.patient

    def sleep(self, seconds):
        """Let virtual time pass."""
        self.wait(Signal(), lambda: False, seconds, f"time.sleep({seconds:g})")

    def step_aside(self):
        """Let others run who can, and come back."""
        me = self.running
        self.ready(me)
        self._switch(me)

    # -- the baton -------------------------------------------------------------------------

    def _begin(self, actor):
        self.running = actor
        self.switches += 1
        self._swap(actor.rank)
        if actor.killed is not None:
            killed, actor.killed = actor.killed, None
            raise killed
        actor.rank.clock.start()

    def _switch(self, me):
        me.rank.clock.stop()
        following = self._next()
        if following is not me:
            following.baton.release()
            me.baton.acquire()
        self._begin(me)
        if me.rank.due:
            me.rank.settle()

    def _pass_on(self):
        following = self._next()
        if following is None:
            self._finished.set()
        else:
            following.baton.release()

    def _next(self):
        """Who runs next, taken from the queues; None if all are over."""
        while True:
            if self.failure is not None:
                self._wake_all()
            actor = self._earliest() if self.timed else self._first()
            if actor is not None:
                actor.queued = False
                if not actor.over:
                    return actor
                continue
            if not self._alive:
                return None
            if self.quiet is not None and self.quiet():
                continue
            if not (self._urgent and self._ring()):
                self._stuck()

    def _first(self):
        if not self._ready:
            return None
        if self._random is None or len(self._ready) == 1:
            return self._ready.popleft()
        taken = self.choose("run", self._ready)
        self._ready.rotate(-taken)
        actor = self._ready.popleft()
        self._ready.rotate(taken)
        return actor

    def _earliest(self):
        while self._heap and self._alarms and self._alarms[0][0] < self._heap[0][0]:
            if not self._ring():
                break
        if not self._heap:
            return None
        first = heapq.heappop(self._heap)
        if self._random is None or not self._heap or self._heap[0][0] > first[0]:
            return first[2]
        same = [first]
        while self._heap and self._heap[0][0] == first[0]:
            same.append(heapq.heappop(self._heap))
        taken = same.pop(self.choose("run", same))
        for entry in same:
            heapq.heappush(self._heap, entry)
        return taken[2]

    def _ring(self):
        """The earliest alarm that still matters rings; whether there was one."""
        while self._alarms:
            due, _, actor, waiting = heapq.heappop(self._alarms)
            if actor.wait is not waiting or waiting.rang or actor.queued:
                continue
            waiting.rang = True
            self._urgent -= not waiting.patient
            self.time = max(self.time, due)
            if self.timed:
                actor.rank.clock.advance(waiting.until, "sleep", waiting.what)
            self.ready(actor)
            return True
        return False

    def _wake_all(self):
        for actor in self.blocked():
            actor.killed = actor.killed or Stopped()
            self.ready(actor)

    def blocked(self):
        """The threads that wait."""
        return [a for a in list(self._actors.values()) if a.wait is not None and not a.queued]

    def kill(self, actor, error):
        """Have a waiting thread raise `error`."""
        actor.killed = error
        self.ready(actor)
