"""A plan: what one rank does in one collective, worked out once and kept.

An algorithm is a generator; running it for every call would cost more than sending a small
tensor. So its rounds are put in the form that executor and links need, and kept for the next
call of the same kind: per round the chunks for each peer as one message, the chunks from each
peer in the same order, and where several contributions meet, the order in which they are combined.

A chunk that goes to several peers in one round is *published* once. On shared memory the readers
must know where in the sender's memory it then lies, without asking: so the plan runs the
generators of *all* ranks, and notes for each chunk that comes in its place among those that its
sender publishes in that round.

    rank 1 publishes in round 2    [ chunk 0 | chunk 3 | chunk 5 ]
    rank 0 takes chunk 3 from it    ........   place 1
"""

from dataclasses import dataclass, field

from teachdist.collectives import DEFINITIONS, Recv, Reduce, Send, get
from teachdist.links.collective.exchange import only_turns


@dataclass(frozen=True, eq=False)
class Round:
    """One round of one rank. Chunks of a message are in ascending order on both sides."""

    sends: dict  # peer -> chunks
    takes: dict  # peer -> chunks
    reduces: dict  # chunk -> ranks whose contributions meet, ascending, this rank among them
    copies: frozenset  # (peer, chunk) that replace what is there
    published: tuple  # the chunks that leave, ascending, each once
    places: dict  # (peer, chunk) that comes in -> its place among what the peer publishes

    kin: dict = field(default_factory=dict)  # the same round with fewer messages

    def only(self, sends, takes):
        """This round with the messages to and from these ranks alone.

        What is published keeps its places.
        """
        key = (tuple(sends), tuple(takes))
        if key not in self.kin:
            self.kin[key] = Round(
                {peer: self.sends[peer] for peer in sends},
                {peer: self.takes[peer] for peer in takes},
                self.reduces,
                frozenset(way for way in self.copies if way[0] in takes),
                self.published,
                {way: place for way, place in self.places.items() if way[0] in takes},
            )
        return self.kin[key]

    def where(self, goes_on):
        """This round without messages of which no chunk goes on: goes_on(chunk)."""
        return self.only(
            [peer for peer, chunks in self.sends.items() if any(map(goes_on, chunks))],
            [peer for peer, chunks in self.takes.items() if any(map(goes_on, chunks))],
        )


@dataclass(frozen=True, eq=False)
class Plan:
    """All rounds of one rank.

    chunks: how many the data is cut into. width: the most chunks that any rank publishes in one
    round. turns: those of data that need not be cut into segments. passes_on: whether some rank
    forwards chunks that it neither gives nor keeps. listens: whether this rank takes anything.
    """

    op: str
    algorithm: str
    place: tuple  # rank, size, root, hosts
    chunks: int
    rounds: tuple
    width: int
    turns: tuple
    passes_on: bool
    listens: bool


_plans = {}
_MOST = 1024


def plan(op, name, rank, size, root, hosts):
    """The plan of `rank` among `size` for an algorithm of the catalogue."""
    algorithm = get(op, name)
    key = (op, name, rank, size, root, hosts)
    known, made = _plans.get(key, (None, None))
    if known is not algorithm:  # new, or another one has taken the name
        made = _plan(algorithm, rank, size, root, hosts)
        if len(_plans) >= _MOST:
            _plans.clear()
        _plans[key] = (algorithm, made)
    return made


def _plan(algorithm, rank, size, root, hosts):
    everybody = [algorithm.rounds(r, size, root=root, hosts=hosts) for r in range(size)]
    rounds, width = [], 1
    for number in range(max(map(len, everybody))):
        actions = [rounds_of[number] if number < len(rounds_of) else () for rounds_of in everybody]
        published = [tuple(sorted({a.chunk for a in mine if type(a) is Send})) for mine in actions]
        width = max(width, *map(len, published))
        for action in actions[rank]:
            if type(action) is not Send and Send(rank, action.chunk) not in actions[action.source]:
                raise ValueError(
                    f"{algorithm.op} algorithm {algorithm.name!r}, round {number}: rank {rank} "
                    f"waits for chunk {action.chunk} from rank {action.source}, which does not "
                    "send it in that round; teachdist.prove shows where they differ"
                )
        rounds.append(_round(actions[rank], rank, published))
    chunks = algorithm.chunks(size)
    passes_on = any(
        action.chunk not in own
        for r, rounds_of in enumerate(everybody)
        for own in [own_chunks(algorithm.op, r, size, root, chunks)]
        for actions in rounds_of
        for action in actions
    )
    turns = only_turns(rounds)
    place = (rank, size, root, hosts)
    listens = any(rnd.takes for rnd in rounds)
    return Plan(
        algorithm.op,
        algorithm.name,
        place,
        chunks,
        tuple(rounds),
        width,
        turns,
        passes_on,
        listens,
    )


def own_chunks(op, rank, size, root, chunks, end=True):
    """The chunks that a rank gives (and, with `end`, those it keeps) by the definition of `op`."""
    definition = DEFINITIONS[op]
    place = (rank, size, root, chunks)
    given = set(definition.start(*place))
    return given | set(definition.end(*place)) if end else given


def _round(actions, rank, published):
    sends, takes, reduces, copies = {}, {}, {}, set()
    for action in actions:
        if isinstance(action, Send):
            sends.setdefault(action.to, []).append(action.chunk)
            continue
        takes.setdefault(action.source, []).append(action.chunk)
        if isinstance(action, Reduce):
            reduces.setdefault(action.chunk, [rank]).append(action.source)
        elif isinstance(action, Recv):
            copies.add((action.source, action.chunk))
    places = {
        (peer, chunk): published[peer].index(chunk)
        for peer, chunks in takes.items()
        for chunk in chunks
    }
    return Round(
        {peer: sorted(chunks) for peer, chunks in sends.items()},
        {peer: sorted(chunks) for peer, chunks in takes.items()},
        {chunk: sorted(ranks) for chunk, ranks in reduces.items()},
        frozenset(copies),
        published[rank],
        places,
    )
