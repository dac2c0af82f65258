"""Ways to decide what is open: a schedule that is followed, a seed, and a search through all.

A schedule is a line such as "rendezvous 1 0 2": whether sends have buffers, and which of several
options was taken, decision by decision; what is not said takes the first. Decisions with only one
option are not counted.

The search is depth first: the last decision that has another option takes it in the next run, until
none has. Two options that lead to the same place in either order are tried in one order only. That
is what *sleep sets* do: an option that was tried at a decision sleeps in the runs that take another
first, until something comes that depends on it (Godefroid, "Partial-order methods for the
verification of concurrent systems", 1996).
"""

import random
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Schedule:
    """Decisions of a run, to repeat it. buffers: whether sends have some. taken: places.

    seed: not 0 if the order of a rank's threads was left to a seed as well.
    """

    buffers: bool = True
    taken: tuple = ()
    seed: int = 0

    def __str__(self):
        words = ["buffered" if self.buffers else "rendezvous", *map(str, self.taken)]
        return " ".join([*words, *([f"seed={self.seed}"] if self.seed else [])])

    @classmethod
    def read(cls, text):
        """The Schedule that `text` says; ValueError for text that says none."""
        if isinstance(text, cls):
            return text
        first, *rest = str(text).split() or [""]
        seeds = [word for word in rest if word.startswith("seed=")]
        numbers = [word for word in rest if word not in seeds]
        right = all(map(str.isdigit, [*numbers, *(word[5:] for word in seeds)]))
        if first not in ("buffered", "rendezvous") or not right:
            raise ValueError(
                f'schedule={text!r}: expected "buffered" or "rendezvous" and the numbers of '
                'decisions, as in "rendezvous 1 0 2"'
            )
        seed = int(seeds[0][5:]) if seeds else 0
        return cls(first == "buffered", tuple(map(int, numbers)), seed)


class Followed:
    """Takes what a list says, then the first. taken: what it took where there was a choice.

    options: the words of what was taken, for a reader.
    """

    def __init__(self, taken=(), luck=None):
        self._given, self._luck = list(taken), luck
        self.taken, self.words = [], []

    def pick(self, options):
        """The place of the option to take."""
        if len(options) == 1:
            return 0
        place = self._pick(options)
        self.taken.append(place)
        self.words.append(getattr(options[place], "words", ""))
        return place

    def _pick(self, options):
        if self._given:
            return min(self._given.pop(0), len(options) - 1)
        return self._luck.randrange(len(options)) if self._luck else 0


def by_seed(seed):
    """A way that takes by chance, the same for the same seed."""
    return Followed(luck=random.Random(seed))


@dataclass
class Decision:
    """An open decision of the search. sleeping: options that need not be tried here now."""

    options: list
    sleeping: dict
    at: int = 0

    def next(self, first):
        """Go to the next option that is awake, from place `first` on; whether there is one."""
        for place in range(first, len(self.options)):
            if self.options[place].name not in self.sleeping:
                self.at = place
                return True
        return False


@dataclass
class Search:
    """The decisions of the present run, in order. odd: a run went otherwise than before."""

    decisions: list = field(default_factory=list)
    odd: bool = False

    def run(self):
        """The way of the next run."""
        return _Searching(self)

    def onward(self):
        """Go to the next run; False if all have been tried."""
        while self.decisions:
            last = self.decisions[-1]
            taken = last.options[last.at]
            last.sleeping[taken.name] = taken
            if last.next(0):
                return True
            self.decisions.pop()
        return False


class _Searching(Followed):
    """One run of a search."""

    def __init__(self, search):
        super().__init__()
        self._search = search
        self._depth = 0
        self.redundant = False  # others have been where it leads, so it ends here

    def pick(self, options):
        """The place of the option that the search wants to try here."""
        decisions, depth = self._search.decisions, self._depth
        self._depth += 1
        if depth < len(decisions):
            known = decisions[depth]
            if [one.name for one in known.options] != [one.name for one in options]:
                self._search.odd = True
            place = min(known.at, len(options) - 1)
        else:
            decision = Decision(list(options), self._sleeping())
            if not decision.next(0):
                self.redundant = True
                return None
            decisions.append(decision)
            place = decision.at
        if len(options) > 1:
            self.taken.append(place)
            self.words.append(options[place].words)
        return place

    def _sleeping(self):
        if not self._search.decisions:
            return {}
        last = self._search.decisions[-1]
        taken = last.options[last.at]
        return {n: one for n, one in last.sleeping.items() if one.independent(taken)}
