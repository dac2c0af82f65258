"""What may go one way or another, held back until nobody can go on, and then decided.

Most of what ranks do has one outcome in every order: who receives from a rank that it names gets
that rank's next message, whoever else ran before. Only a few things depend on who is quicker:

    a receive from anybody      which of the messages that are there it takes
    a store that several use    whose call comes first
    is_completed()              yes or no

So an exploring rehearsal runs all ranks as far as they go, and only then decides one such thing,
with all that could have come by then to choose from. (The literature calls this the POE algorithm:
Vakkalanka, Gopalakrishnan and Kirby, "Dynamic verification of MPI programs with reductions in
presence of split operations and relaxed orderings", 2008.) Each decision goes through
`scheduler.choose`, so a list of numbers repeats the run.
"""

from dataclasses import dataclass

from teachdist.rehearse.actors import Signal
from teachdist.rehearse.errors import Hang, Stopped

ENDLESS = 1000  # polls of one work after which it is a hang
IMPATIENT = 1  # times that the poll of a work is told no though yes could have come


@dataclass(frozen=True)
class Option:
    """One way to go on. name: the same in every run; subject: what it is about; rank: of whom.

    Two options about different subjects, on different ranks, lead to the same place in either
    order.
    """

    name: tuple
    subject: tuple
    rank: int
    words: str
    act: object = None

    def independent(self, other):
        """Whether it matters not which of the two comes first."""
        return self.subject != other.subject and self.rank != other.rank


class Orders:
    """The open decisions of a job. way: has `pick(options)`, which answers with a place.

    sites: {kind: places in the program} at which there was something to decide.
    """

    def __init__(self, job, way):
        self._job, self._way = job, way
        self._calls = []  # (Option, its Signal), of store calls that wait for their turn
        self._granted = set()
        self._numbers = {}
        self.sites = {}
        job.scheduler.chooser, job.scheduler.quiet = self._choose, self.decide

    @property
    def threads(self):
        """Whether a rank has had more threads than one."""
        return self._job.scheduler.adopted

    def _choose(self, kind, options):
        """What `scheduler.choose` asks: only what is held here is decided by the way."""
        if kind in ("order", "poll") or (self.threads and kind == "run"):
            return self._way.pick(options)
        return 0

    # -- receives from anybody -------------------------------------------------------------

    def _messages(self):
        """The options of all first receives from anybody."""
        found = []
        for group in self._job.groups():
            for rank, desk in group.desks.items():
                found += self._at_desk(group, rank, desk)
        return found

    def _at_desk(self, group, rank, desk):
        for place, receive in enumerate(desk.posted):
            if receive.source is not None:
                continue
            before = [p for p in desk.posted[:place] if p.source is None and p.tag == receive.tag]
            ways = {}
            for message in desk.unexpected:
                if message.tag == receive.tag:
                    ways.setdefault(message.source, message)
            if ways and not before:
                yield from self._options(group, rank, receive, ways)

    def _options(self, group, rank, receive, ways):
        number = group.ranks[rank]
        if len(ways) > 1:
            self.sites.setdefault("receive from anybody", set()).add(_site(receive.work.words))
        for source, message in sorted(ways.items()):
            name = "message", group.key, rank, receive.number, source, message.number
            words = f"rank {number} takes what rank {group.ranks[source]} sent"
            subject = "desk", group.key, rank
            act = lambda m=message: self._match(group, rank, receive, m)  # noqa: E731
            yield Option(name, subject, number, words, act)

    def _match(self, group, rank, receive, message):
        from teachdist.rehearse.point_to_point import match

        match(group, rank, receive, message)

    # -- stores ----------------------------------------------------------------------------

    def turn(self, key, what, site):
        """A rank's call of a store waits until it is its turn."""
        scheduler = self._job.scheduler
        actor = scheduler.running
        number = self._numbers[actor] = self._numbers.get(actor, 0) + 1
        rank = actor.rank.number
        option = Option(("store", rank, number), ("key", key), rank, f"rank {rank}: {what}")
        self.sites.setdefault("store", set()).add(site)
        signal = Signal()
        self._calls.append((option, signal))
        clock = actor.rank.clock
        clock.enter()
        try:
            scheduler.wait(signal, lambda: option in self._granted, None, what)
        finally:
            clock.leave()

    # -- polls -----------------------------------------------------------------------------

    def poll(self, work, words):
        """What is_completed() of a work answers."""
        if work.refused < IMPATIENT and self._refuse(work, words):
            return False
        if not work.over:
            work.polls += 1
            if work.polls > ENDLESS:
                raise Hang(f"{work.rank} asks for ever whether {words} is over; it never will be")
            work.over_within(1e-6)
        return work.over

    def _refuse(self, work, words):
        """Whether the answer is no at once, whatever there is."""
        rank = work.rank.number
        self.sites.setdefault("is_completed", set()).add(_site(words))
        number = self._numbers[work.rank] = self._numbers.get(work.rank, 0) + 1
        options = [
            Option(("poll", rank, number, answer), ("poll", rank), rank, f"rank {rank}: {answer}")
            for answer in ("when all have gone on", "no")
        ]
        work.refused += 1
        return self._job.scheduler.choose("poll", options) == 1

    # -- deciding --------------------------------------------------------------------------

    def decide(self):
        """Nobody can go on: take one of the open decisions; whether there was one."""
        options = self._messages() + [option for option, _ in self._calls]
        if not options:
            return False
        options.sort(key=lambda option: str(option.name))
        place = self._job.scheduler.choose("order", options)
        if place is None:
            self._job.scheduler.stop(Stopped())
            return True
        option = options[place]
        if option.act is not None:
            option.act()
            return True
        self._granted.add(option)
        signal = next(signal for one, signal in self._calls if one is option)
        self._calls.remove((option, signal))
        signal.notify()
        return True


def _site(words):
    return words.rpartition(" at ")[2]
