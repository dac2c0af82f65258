"""Plays the calls of all ranks again, under rules, without data: does everybody come to the end?

Every rank does the next thing of its program as long as it can: it begins a unit, which goes to
its stream, or it waits for an operation. A unit starts when all before it on its stream are over.
Operations that have started find each other: collectives by their number in the group, messages by
their order (and tag, where there are tags). What nobody can go on from is a hang.

Nothing here is a matter of luck. Who receives from a rank that it names gets the same message in
any order of events, so a run in which nobody can go on is reached from every order if it is reached
from one (that programs without "receive from anybody" behave so is shown in the literature on
checking MPI: Siegel and Avrunin, "Modeling wildcard-free MPI programs for verification", 2005). A
receive from anybody plays as it went: with the source that it had then.
"""

from collections import defaultdict, deque

from teachdist.rules.streams import programs


class Machine:
    """A run of {rank: Log} under `Rules`. After `run`: is anybody stuck, and what did differ.

    pairs: (send, receive) that met; met: {operation: those whom it met}. odd: pairs that matched by
    order though their tags or sizes say that they shouldn't.
    """

    def __init__(self, logs, rules):
        self.rules = rules
        self.programs, self.units = programs(logs, rules)
        self.over = set()  # operations
        self.odd = []
        self.pairs = []
        self.met = {}
        self.streams = defaultdict(deque)
        self.meetings = defaultdict(dict)  # (group, number) -> {rank: operation}
        self.sends, self.receives = defaultdict(deque), defaultdict(deque)
        self._numbers = defaultdict(int)  # (group, rank) -> collectives begun
        self._numbered = {}
        self.came = defaultdict(set)  # communicator -> ranks that use it
        self._sleeping = defaultdict(list)  # what a program waits for -> programs
        self._awake = deque(self.programs)

    def run(self):
        """Play until all are over or nobody can go on; whether all are over."""
        while self._awake:
            program = self._awake.popleft()
            program.blocked = None
            while not program.over and self._step(program):
                program.at += 1
        return not self.stuck()

    def stuck(self):
        """The programs that have not come to their end."""
        return [program for program in self.programs if not program.over]

    def unfinished(self):
        """Operations that nobody waited for, and that are not over."""
        waited = {p.items[p.at][1] for p in self.stuck() if p.items[p.at][0] == "wait"}
        return [o for o, u in self.units.items() if u.started and o not in self.over | waited]

    # -- programs --------------------------------------------------------------------------

    def _step(self, program):
        what, item = program.items[program.at]
        if what == "wait":
            return item in self.over or self._sleep(program, item)
        if item.meets is not None and not self._meet(program.rank, item):
            return self._sleep(program, item.meets[0])
        for operation in item.operations:
            if operation.kind == "collective":
                place = operation.group, operation.rank
                self._numbered[operation] = self._numbers[place]
                self._numbers[place] += 1
        if item.stream is None:
            self._start(item)
        else:
            queue = self.streams[item.stream]
            queue.append(item)
            if queue[0] is item:
                self._start(item)
        return True

    def _sleep(self, program, what):
        program.blocked = what
        self._sleeping[what].append(program)
        return False

    def _wake(self, what):
        self._awake.extend(self._sleeping.pop(what, ()))

    def _meet(self, rank, unit):
        name, ranks = unit.meets
        came = self.came[name]
        if rank not in came:
            came.add(rank)
            if came >= set(ranks):
                self._wake(name)
        return came >= set(ranks)

    # -- operations ------------------------------------------------------------------------

    def _start(self, unit):
        unit.started = True
        for operation in list(unit.operations):
            if operation.kind == "collective":
                self._collective(operation)
            elif operation.kind == "send":
                self._send(operation)
            else:
                self._receive(operation)

    def _done(self, operation):
        if operation in self.over:
            return
        self.over.add(operation)
        self._wake(operation)
        unit = self.units[operation]
        unit.open -= 1
        if unit.open or unit.stream is None:
            return
        queue = self.streams[unit.stream]
        queue.popleft()
        if queue:
            self._start(queue[0])

    def number(self, operation):
        """Which collective of its group it is on its rank, counted from 1."""
        return self._numbered.get(operation, -1) + 1

    def _collective(self, operation):
        meeting = self.meetings[operation.group, self._numbered[operation]]
        meeting[operation.rank] = operation
        if len(meeting) == len(operation.group[1]):
            everybody = list(meeting.values())
            for one in everybody:
                self.met[one] = everybody
                self._done(one)

    def _channel(self, operation, source, dest):
        tag = operation.tag if self.rules["tags"] else None
        batched = operation.batch is not None if self.rules["stream"] == "pair" else None
        return operation.group, source, dest, tag, batched

    def _send(self, send):
        where = self._channel(send, send.rank, send.peer)
        if send.nbytes <= self.rules["buffers"]:
            self._done(send)
        if self.receives[where]:
            self._match(send, self.receives[where].popleft())
        else:
            self.sends[where].append(send)

    def _receive(self, receive):
        source = receive.peer if receive.peer is not None else receive.source
        where = self._channel(receive, source, receive.rank)
        if self.sends[where]:
            self._match(self.sends[where].popleft(), receive)
        else:
            self.receives[where].append(receive)

    def _match(self, send, receive):
        if send.tag != receive.tag or send.nbytes != receive.nbytes:
            self.odd.append((send, receive))
        self.pairs.append((send, receive))
        self.met[send] = self.met[receive] = (send, receive)
        self._done(send)
        self._done(receive)
