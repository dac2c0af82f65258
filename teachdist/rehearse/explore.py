"""explore(): does the program come to its end in every order, with and without buffers?

    answer = teachdist.explore(step, ranks=4)
    if not answer:
        print(answer)                                        # what went wrong, and the schedule
        teachdist.rehearse(step, ranks=4, schedule=answer.schedule)

First the program runs on virtual ranks once without buffers. If nothing in that run could have gone
another way (no receive from anybody, no poll, no store read in a race, no second thread), then the
run speaks for all: no order and no buffers make it hang, because each rank gets the same messages
in each of them. That is a proof, for these arguments. It says so, and it says as well where the
program looks at values, since with other data it may call something else.

Otherwise the orders are tried, as described in `orders.py` and `ways.py`: all, if there are not too
many, and then by seeds. What fails is made short: decisions that need not be as they are go back to
the first option.
"""

import time
from dataclasses import dataclass, field

from torch.utils._python_dispatch import TorchDispatchMode

from teachdist.diagnose.call_site import call_site
from teachdist.rehearse.errors import RehearsalError
from teachdist.rehearse.orders import IMPATIENT
from teachdist.rehearse.run import rehearse
from teachdist.rehearse.ways import Followed, Schedule, Search, by_seed
from teachdist.words import in_seconds

SHORTENING = 60  # runs that making a failure short may take
_LOOKS = ("_local_scalar_dense", "is_nonzero", "equal", "nonzero")


@dataclass
class Exploration:
    """What was found; truthy if no run failed. Its text is the report.

    failure: the RehearsalError of the shortest failing run, or None. schedule: the `Schedule` that
    repeats it; decided: its decisions in words. seed: with which it was found, 0 if by the search.
    runs: how many there were, without those that shortened the failure. complete: whether all
    orders were tried. notes: what keeps that from being a proof, and what it rests on.
    """

    ranks: int
    runs: int = 0
    seconds: float = 0.0
    complete: bool = False
    failure: RehearsalError | None = None
    schedule: Schedule | None = None
    seed: int = 0
    decided: list = field(default_factory=list)
    notes: list = field(default_factory=list)

    def __bool__(self):
        return self.failure is None

    @property
    def proven(self):
        """Whether no order and no buffers can make it hang, with these arguments."""
        return self.failure is None and self.complete

    def __str__(self):
        runs = f"{self.runs} {'run' if self.runs == 1 else 'runs'} in {in_seconds(self.seconds)}"
        if self.failure is not None:
            lines = [
                f"{self.ranks} ranks fail by the schedule {str(self.schedule)!r}, of {runs}:",
                *(f"    {words}" for words in self.decided),
                str(self.failure),
            ]
        elif self.proven:
            lines = [f"{self.ranks} ranks: no order and no buffers make it hang ({runs})"]
        else:
            lines = [f"{self.ranks} ranks: no failure in {runs}; that is no proof"]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    __repr__ = __str__

    def _repr_html_(self):
        return self.draw()

    def draw(self):
        """The failing run as a picture in HTML: who called what, and who waits; "" without one."""
        from teachdist.rules.picture import picture

        answer = getattr(self.failure, "answer", None)
        return picture(answer.logs, str(self)) if answer is not None else ""


class _Watch(TorchDispatchMode):
    """Notes where a program looks at the values of tensors."""

    def __init__(self, places):
        super().__init__()
        self._places = places

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.__name__.partition(".")[0] in _LOOKS:
            self._places.add(call_site(2))
        return func(*args, **(kwargs or {}))


class _Explorer:
    def __init__(self, function, args, kwargs, ranks, how):
        self._function, self._args, self._kwargs = function, args, kwargs
        self._ranks, self._how = ranks, how
        self.places, self.sites = set(), {}
        self.threads = self.odd = False

    def run(self, way, buffers, seed=0):
        """One run; (its RehearsalError or None, its way)."""

        def main(*args, **kwargs):
            with _Watch(self.places):
                return self._function(*args, **kwargs)

        failure, how = None, {"ranks": self._ranks, "buffers": buffers, "seed": seed, **self._how}
        try:
            answer = rehearse(main, *self._args, schedule=way, **how, **self._kwargs)
        except RehearsalError as error:
            failure, answer = error, error.answer
        for kind, sites in answer.orders.sites.items():
            self.sites.setdefault(kind, set()).update(sites)
        self.threads = self.threads or answer.orders.threads
        return failure

    def search(self, buffers, until, most):
        """All orders with or without buffers: (failure, its Schedule, runs, whether all)."""
        search, runs = Search(), 0
        while True:
            way = search.run()
            failure = self.run(way, buffers)
            runs += not way.redundant
            if failure is not None and not way.redundant:
                return failure, Schedule(buffers, tuple(way.taken)), runs, False
            self.odd = self.odd or search.odd
            if not search.onward():
                return None, None, runs, True
            if runs >= most or time.monotonic() > until:
                return None, None, runs, False

    def chance(self, buffers, seed):
        """One run by a seed: (failure, its Schedule)."""
        way = by_seed(seed)
        failure = self.run(way, buffers, seed)
        return failure, Schedule(buffers, tuple(way.taken), seed if self.threads else 0)

    def shorten(self, failure, schedule):
        """The failure with as few decisions as possible other than the first option."""
        taken, tries = list(schedule.taken), 0
        while taken and taken[-1] == 0:
            taken.pop()
        for place in reversed(range(len(taken))):
            if not taken[place] or tries >= SHORTENING:
                continue
            for shorter in (taken[:place], [*taken[:place], 0, *taken[place + 1 :]]):
                tries += 1
                found = self.run(Followed(shorter), schedule.buffers, schedule.seed)
                if found is not None:
                    failure, taken = found, shorter
                    break
        while taken and taken[-1] == 0:
            taken.pop()
        way = Followed(taken)
        failure = self.run(way, schedule.buffers, schedule.seed) or failure
        return failure, Schedule(schedule.buffers, tuple(taken), schedule.seed), way.words


def explore(function, *args, ranks=4, runs=200, seconds=60.0, **kwargs):
    """Run function(*args, **kwargs) on `ranks` virtual ranks in other orders; an `Exploration`.

    runs, seconds: how much it may take. If all orders are more than half of that, the other half
    goes to seeds. Keywords that `teachdist.rehearse` knows (rules, init, device_as, ...) go there.
    """
    known = ("topology", "init", "device_as", "rules", "backend")
    how = {name: kwargs.pop(name) for name in known if name in kwargs}
    explorer = _Explorer(function, args, kwargs, ranks, how)
    found = Exploration(ranks)
    began = time.monotonic()
    failure = schedule = None
    parts = []
    for buffers in (False, True):
        share = (runs - found.runs) // 2 if buffers else runs // 4
        until = began + seconds * (0.5 if buffers else 0.25)
        failure, schedule, count, whole = explorer.search(buffers, until, max(share, 1))
        found.runs += count
        parts.append(whole)
        if failure is not None or not (explorer.sites or explorer.threads):
            break
    seed = 0
    while failure is None and (not all(parts) or explorer.threads):
        if found.runs >= runs or time.monotonic() - began > seconds:
            break
        seed += 1
        failure, schedule = explorer.chance(bool(seed % 2), seed)
        found.runs += 1
    if failure is not None:
        found.failure, found.schedule, found.decided = explorer.shorten(failure, schedule)
        found.seed = seed
    found.seconds = time.monotonic() - began
    found.complete = failure is None and all(parts) and not (explorer.threads or explorer.odd)
    found.notes = _notes(explorer, found)
    return found


def _notes(explorer, found):
    notes = [
        f"{kind} ({', '.join(sorted(sites)[:3])}): {_MEANS[kind]}"
        for kind, sites in sorted(explorer.sites.items())
    ]
    if explorer.threads:
        notes.append("ranks have several threads: their order was tried by seeds only")
    if explorer.odd:
        notes.append(
            "the program differs from run to run in the same order (time, random numbers without "
            "a seed?), so not all orders can have been tried"
        )
    if explorer.places:
        places = ", ".join(sorted(explorer.places)[:3])
        notes.append(f"it looks at values ({places}): with other data it may call something else")
    if found.failure is None and not found.complete and not (explorer.threads or explorer.odd):
        notes.append(f"more orders than {found.runs} runs could try; more with runs= and seconds=")
    return notes


_MEANS = {
    "receive from anybody": "which message comes first is a matter of luck",
    "store": "the order of calls is a matter of luck",
    "is_completed": f"polls were told no at most {IMPATIENT} time early",
}
