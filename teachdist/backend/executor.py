"""The executor: runs the rounds of any algorithm for any collective, with no branch for either.

A call says which chunks this rank holds at the start (`sources`) and where chunks must end
(`targets`); a plan says what happens in each round. Between the two stands the *state*: for
each chunk the tensor that holds its present value.

- At the start that is the caller's own input, which is only read.
- The first value that a round writes goes to the chunk's place: its target, or scratch if the
  chunk only passes through this rank (or if its target may not be touched yet).
- At the end every target that is not the chunk's place gets a copy.

So inputs are never modified, nothing is copied that need not be, and ring, tree and the
learner's own algorithm run on the same hundred lines.

How the state changes depends on the plan and on the sizes alone, so a call is first written down
as a *script*, with tensors in place of chunks, and then played. A call that comes again with the
same tensors is played from its old script: see `again.py`.

    rounds of the plan      Send(1, 0), Reduce(1, 0)
    script of the call      publish bytes of x | take 8 bytes from 1 | add to x | the end

Large data runs in *segments*, a piece of every chunk each, two of them interleaved: while others
still read what one segment published, this rank works on the other (`links/exchange.py`).

    publish a0   publish b0   take a0   publish a1   take b0   publish b1   take a1   take b1 ...

Contributions that meet in one round are combined in order of rank, the rank's own in its place:
all ranks that combine the same chunks get the same bits. They are combined straight from where the
links show them, for shared memory that is the sender's own.
"""

from dataclasses import dataclass, field

import torch

from teachdist.links.exchange import Want, turns
from teachdist.links.raw import scratch, view_bytes

# Elements that a torch operation takes at once. Beyond this many it would spread over threads,
# which for short operations costs far more than it gains when every rank has threads of its own.
SERIAL = 32768


def execute(call, plan, links, exchange, observer=None):
    """Run `call` by `plan`. Raises what the links raise; then the outputs are undefined.

    observer: called as observer(round, rnd, state) after each turn, for traces.
    """
    if call.script is not None:
        play(call.script, call, links, exchange)
    else:
        _execute(call, plan, links, exchange, observer)
    call.complete()


def _execute(call, plan, links, exchange, observer):
    sources, targets = call.bind(plan.chunks)
    elements = exchange.piece // call.dtype.itemsize
    foreign = call.foreign if isinstance(call.foreign, int) else 0
    sizes = [t.numel() for t in (*sources.values(), *targets.values())]
    segments = -(-max(*sizes, foreign) // elements)
    traced = observer is not None
    if segments > 1 and plan.rounds:
        pieces = _Pieces(call, plan.rounds, sources, targets, elements, traced)
        _interleaved(pieces, segments, call, links, exchange, observer)
        return
    lent = None
    if call.kept is not None and not traced:
        lent = call.kept.lend(sources), call.kept.lend(targets)
        if None not in lent:
            sources, targets = lent
    script = write(plan.turns, sources, targets, call.foreign, call.dtype, traced)
    play(script, call, links, exchange, observer)
    if lent is not None and None not in lent:
        call.kept.keep(call, script)


def play(script, call, links, exchange, observer=None):
    """Run a script from its beginning to its end."""
    for step in script.steps:
        if step.leaving:
            links.post(exchange, step.turn, step.turn.rnd, step.leaving)
        if step.leaving or step.wants or observer is not None:
            _take(step, call, links, exchange, observer)
    for target, value in script.finals:
        target.copy_(value)


def _take(step, call, links, exchange, observer):
    """Wait for what comes in a turn, and work it in."""
    turn = step.turn
    rnd = turn.rnd
    arrived = links.take(exchange, turn, rnd, step.wants)
    for way, place in step.copies:
        place.copy_(arrived[way])
    for out, operands in step.sums:
        values = [arrived[one] if type(one) is tuple else one for one in operands]
        combine(call.reducer.combine, out, values)
    if step.wants:
        links.release(exchange, turn, rnd)
    if observer is not None:
        observer(turn.round, rnd, step.state)


def _interleaved(pieces, segments, call, links, exchange, observer):
    """Each turn goes out before the one before it is taken, unless it needs what comes now."""
    upcoming = turns(pieces.rounds, segments)
    turn, posted = next(upcoming), False
    while turn is not None:
        step = pieces.step(turn)
        if not posted:
            links.post(exchange, turn, turn.rnd, step.leaving)
        following = next(upcoming, None)
        posted = following is not None and following.segment != turn.segment
        if posted:
            links.post(exchange, following, following.rnd, pieces.step(following).leaving)
        _take(step, call, links, exchange, observer)
        if turn.last:
            pieces.finish(turn.segment)
        turn = following


@dataclass(slots=True)
class Step:
    """What this rank does in one turn."""

    turn: object
    leaving: dict  # chunk -> its bytes, to be published
    wants: dict  # (peer, chunk) -> Want
    copies: list = field(default_factory=list)  # ((peer, chunk), tensor): where it goes
    sums: list = field(default_factory=list)  # (tensor, operands: tensors or (peer, chunk))
    state: dict | None = None  # for traces: {chunk: tensor} afterwards


@dataclass(slots=True)
class Script:
    """All steps of a segment. finals: (target, value) to be copied at the end.

    places: the tensors that the steps write to, of which they mostly hold the addresses alone.
    scratch: how many bytes of these are not the caller's.
    """

    steps: list
    finals: list
    places: dict
    scratch: int


def write(turns_, sources, targets, foreign, dtype, traced=False):
    """The script of one segment: its chunks' tensors at the start and for the end.

    foreign: elements of chunks that only pass through: a number, or a number for each chunk.
    """
    writer = _Writer(sources, targets, foreign, dtype, traced)
    steps = [writer.step(turn) for turn in turns_]
    return Script(steps, writer.finals(), writer.places, writer.scratch)


class _Writer:
    """Follows the state through the rounds."""

    def __init__(self, sources, targets, foreign, dtype, traced):
        self.state = dict(sources)
        self.targets = targets
        self.foreign = foreign
        self.dtype = dtype
        self.traced = traced
        self.places = {}
        self.scratch = 0

    def step(self, turn):
        """Write down one turn."""
        rnd = turn.rnd
        step = Step(turn, {chunk: view_bytes(self.state[chunk]) for chunk in rnd.published}, {})
        written = {}
        for way in rnd.places:
            chunk = way[1]
            numel = self._numel(chunk)
            room = None
            if way in rnd.copies:
                written[chunk] = place = self._place(chunk, numel)
                if chunk in rnd.published:  # it still leaves from there
                    step.copies.append((way, place))
                else:
                    room = view_bytes(place)
            step.wants[way] = Want(numel * self.dtype.itemsize, numel, self.dtype, room)
        self.state |= written
        for chunk, ranks in rnd.reduces.items():
            own = self.state[chunk]
            operands = [(r, chunk) if (r, chunk) in rnd.places else own for r in ranks]
            self.state[chunk] = out = self._place(chunk, own.numel())
            step.sums.append((out, operands))
        if self.traced:
            step.state = dict(self.state)
        return step

    def _numel(self, chunk):
        known = self.state.get(chunk)
        if known is None:
            known = self.targets.get(chunk)
        if known is not None:
            return known.numel()
        return self.foreign[chunk] if isinstance(self.foreign, dict) else self.foreign

    def _place(self, chunk, numel):
        """Where new values of a chunk are written."""
        place = self.places.get(chunk)
        if place is None:
            place = self.targets.get(chunk)
            if place is None or place.numel() != numel:
                place = scratch(numel, self.dtype)
                self.scratch += place.nbytes
            self.places[chunk] = place
        return place

    def finals(self):
        """What must be copied at the end, as it is not yet where it belongs."""
        found = []
        for chunk, target in self.targets.items():
            if not target.numel():
                continue  # perhaps nothing came: of this chunk there was nothing left
            value = self.state[chunk]
            if value is not target and value.data_ptr() != target.data_ptr():
                if value.numel() != target.numel():
                    raise ValueError(
                        f"chunk {chunk}: {value.numel()} elements for an output of {target.numel()}"
                    )
                found.append((target, value))
        return found


class _Pieces:
    """The segments of a call: pieces of all its chunks, and scripts for them as they are needed."""

    def __init__(self, call, rounds, sources, targets, elements, traced):
        self.call, self.sources, self.targets, self.elements = call, sources, targets, elements
        self._rounds = rounds
        self._traced = traced
        self._open = {}

    def rounds(self, segment):
        """The rounds of a segment.

        Where only the two ends of a message know its length, only they can know that it has no
        more pieces: such messages are left out.
        """
        if segment == 0 or isinstance(self.call.foreign, int):
            return self._rounds
        begin = segment * self.elements
        return [rnd.where(lambda chunk: self._size(chunk) > begin) for rnd in self._rounds]

    def _size(self, chunk):
        for known in (self.sources, self.targets):
            if chunk in known:
                return known[chunk].numel()
        return self.call.foreign[chunk]

    def step(self, turn):
        """The step of a turn; a segment's turns must come in order."""
        writer, steps = self._open.get(turn.segment) or self._begin(turn.segment)
        if turn.round not in steps:
            steps[turn.round] = writer.step(turn)
        return steps[turn.round]

    def _begin(self, segment):
        begin, end = segment * self.elements, (segment + 1) * self.elements

        def inside(numel):
            return max(0, min(end, numel) - begin)

        foreign = self.call.foreign
        if isinstance(foreign, dict):
            foreign = {chunk: inside(numel) for chunk, numel in foreign.items()}
        elif foreign is not None:
            foreign = inside(foreign)
        writer = _Writer(
            {chunk: t[begin:end] for chunk, t in self.sources.items()},
            {chunk: t[begin:end] for chunk, t in self.targets.items()},
            foreign,
            self.call.dtype,
            self._traced,
        )
        self._open[segment] = (writer, {})
        return self._open[segment]

    def finish(self, segment):
        """A segment has had its last round."""
        writer, _ = self._open.pop(segment)
        for target, value in writer.finals():
            target.copy_(value)


def combine(pair, out, operands):
    """Out = the operands combined from left to right by `pair(out, left, right)`.

    `out` may be one of them: the sum grows elsewhere until the last operand has been read.
    """
    if len(operands) == 2 and (out.numel() <= SERIAL or torch.get_num_threads() == 1):
        pair(out, *operands)
        return
    total = scratch(min(SERIAL, out.numel()), out.dtype)
    for begin in range(0, max(1, out.numel()), SERIAL):
        block = slice(begin, begin + SERIAL)
        here = total[: min(SERIAL, out.numel() - begin)]
        left = operands[0][block]
        for operand in operands[1:-1]:
            pair(here, left, operand[block])
            left = here
        pair(out[block], left, operands[-1][block])
