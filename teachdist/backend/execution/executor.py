"""The executor: runs the rounds of any algorithm for any collective, with no branch for either.

A call says which chunks this rank holds at the start (`sources`) and where chunks must end
(`targets`); a plan says what happens in each round. Between the two stands the script
(`script.py`): the rounds with tensors in place of chunks.

Large data runs in *segments*, a piece of every chunk each, two of them interleaved: while others
still read what one segment published, this rank works on the other
(`links/collective/exchange.py`).

    publish a0   publish b0   take a0   publish a1   take b0   publish b1   take a1   take b1 ...

So ring, tree and the learner's own algorithm run on the same few lines, on any data, over any
links.
"""

from teachdist.backend.execution.lengths import lengths
from teachdist.backend.execution.script import Writer, copy_all, play, take, write
from teachdist.links.collective.exchange import turns


def execute(call, plan, links, exchange, observer=None):
    """Run `call` by `plan`. Raises what the links raise; then the outputs are undefined.

    observer: called as observer(round, rnd, state) after each turn, for traces.
    """
    if call.script is not None:
        play(call.script, call, links, exchange)
    else:
        _execute(call, plan, links, exchange, observer)
    if call.after or call.write_back or call.then:
        call.complete()


def _execute(call, plan, links, exchange, observer):
    sources, targets = call.bind(plan.chunks)
    elements = exchange.piece // call.dtype.itemsize
    foreign = call.foreign
    sizes = [t.numel() for t in (*sources.values(), *targets.values())]
    if plan.passes_on:
        if foreign is None:
            foreign = lengths(call, plan, links, exchange, sources)
        sizes += foreign.values() if isinstance(foreign, dict) else [foreign]
    segments = -(-max(sizes) // elements)
    traced = observer is not None
    if segments > 1 and plan.rounds:
        pieces = _Pieces(call.dtype, plan.rounds, sources, targets, foreign, elements, traced)
        _interleaved(pieces, segments, call, links, exchange, observer)
        return
    lent = None
    if call.kept is not None and not traced and not isinstance(foreign, dict):
        lent = call.kept.lend(sources), call.kept.lend(targets)
        if None not in lent:
            sources, targets = lent
    script = write(plan.turns, sources, targets, foreign, call.dtype, traced)
    play(script, call, links, exchange, observer)
    if lent is not None and None not in lent:
        call.kept.keep(call, script)


def _interleaved(pieces, segments, call, links, exchange, observer):
    """Each turn goes out before the one before it is taken, unless it needs what comes now."""
    upcoming = turns(pieces.rounds, segments)
    turn, posted = next(upcoming), False
    while turn is not None:
        step = pieces.step(turn)
        if not posted:
            links.post(exchange, step)
        following = next(upcoming, None)
        posted = following is not None and following.segment != turn.segment
        if posted:
            links.post(exchange, pieces.step(following))
        take(step, call, links, exchange, observer)
        if turn.last:
            pieces.finish(turn.segment)
        turn = following


class _Pieces:
    """The segments of a call: pieces of all its chunks, and scripts for them as they are needed."""

    def __init__(self, dtype, rounds, sources, targets, foreign, elements, traced):
        self.sources, self.targets, self.foreign = sources, targets, foreign
        self.elements = elements
        self._dtype = dtype
        self._rounds = rounds
        self._traced = traced
        self._open = {}

    def rounds(self, segment):
        """The rounds of a segment.

        Where only the two ends of a message know its length, only they can know that it has no
        more pieces: such messages are left out.
        """
        if segment == 0 or isinstance(self.foreign, int):
            return self._rounds
        begin = segment * self.elements
        return [rnd.where(lambda chunk: self._size(chunk) > begin) for rnd in self._rounds]

    def _size(self, chunk):
        for known in (self.sources, self.targets):
            if chunk in known:
                return known[chunk].numel()
        return self.foreign[chunk]

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

        foreign = self.foreign
        if isinstance(foreign, dict):
            foreign = {chunk: inside(numel) for chunk, numel in foreign.items()}
        elif foreign is not None:
            foreign = inside(foreign)
        writer = Writer(
            {chunk: t[begin:end] for chunk, t in self.sources.items()},
            {chunk: t[begin:end] for chunk, t in self.targets.items()},
            foreign,
            self._dtype,
            self._traced,
        )
        self._open[segment] = (writer, {})
        return self._open[segment]

    def finish(self, segment):
        """A segment has had its last round."""
        writer, _ = self._open.pop(segment)
        copy_all(writer.finals())
