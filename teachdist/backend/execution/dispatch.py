"""Which way a call goes: its algorithm, its plan, and the number that must agree on all ranks.

Found once for each kind of call and kept, because asking takes longer than moving a few bytes:
`use`, the group's options, the environment and the cost model all have a say. It is asked anew
when `use` has changed something, or when another algorithm has taken the name.
"""

from dataclasses import dataclass

from teachdist.backend.execution.plan import plan
from teachdist.collectives import get
from teachdist.collectives.catalog import choices
from teachdist.links import Exchange, Header
from teachdist.links.board.layout import marked
from teachdist.links.transport.header import number_of


@dataclass(slots=True, eq=False)
class Route:
    """One kind of call. same: its fingerprint without the algorithm.

    changes: the number of `choices` when it was chosen. exchange: what the links know of it; a
    group's calls run one at a time, so one serves all.
    mark: the algorithm, for the board.
    """

    algorithm: object
    plan: object
    same: int
    changes: int
    exchange: Exchange
    mark: str

    @property
    def fresh(self):
        """Whether the choice would be the same today."""
        return self.changes == choices.changes


class Routes:
    """The routes of one rank in a group, for one generation.

    number: of the group, for headers. hosts: the host of each rank, once it is known.
    """

    def __init__(self, rank, size, selection, number, generation):
        self.rank, self.size, self.selection = rank, size, selection
        self.number, self.generation = number, generation
        self.hosts = None
        self._known = {}
        self._numbers = {}

    def same(self, call):
        """The fingerprint of a call without its algorithm: equal on all ranks if the calls are."""
        return self.fingerprint(_kind(call))

    def of(self, call):
        """The route of a call."""
        kind = _kind(call)
        key = (kind, call.nbytes, call.chosen)
        route = self._known.get(key)
        if route is None or not route.fresh:
            changes = choices.changes
            name = self.selection.algorithm(call, self.hosts)
            made = plan(call.op, name, self.rank, self.size, call.root, self.hosts)
            header = Header(
                self.number, self.generation, 0, fingerprint=self.fingerprint((*kind, name))
            )
            exchange = Exchange(header, made.width, self.selection.segment(call.op, self.hosts))
            same = self.fingerprint(kind)
            route = Route(get(call.op, name), made, same, changes, exchange, marked(name))
            self._known[key] = route
        return route

    def fingerprint(self, kind):
        """A number for a kind of call, the same on all ranks."""
        number = self._numbers.get(kind)
        if number is None:
            number = self._numbers[kind] = number_of(repr(kind))
        return number


def _kind(call):
    how = call.reducer.agreed if call.reducer is not None else ""
    return call.op, call.root, how, call.agree
