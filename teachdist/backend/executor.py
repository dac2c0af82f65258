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

Large data runs in *segments*, a piece of every chunk each, two of them interleaved: while others
still read what one segment published, this rank works on the other (`links/exchange.py`).

    publish a0   publish b0   take a0   publish a1   take b0   publish b1   take a1   take b1 ...

Contributions that meet in one round are combined in order of rank, the rank's own in its place:
all ranks that combine the same chunks get the same bits. They are combined straight from where the
links show them, for shared memory that is the sender's own.
"""

import torch

from teachdist.links.exchange import turns
from teachdist.links.raw import scratch

# Elements that a torch operation takes at once. Beyond this many it would spread over threads,
# which for short operations costs far more than it gains when every rank has threads of its own.
SERIAL = 32768


def execute(call, plan, links, exchange, observer=None):
    """Run `call` by `plan`. Raises what the links raise; then the outputs are undefined.

    observer: called as observer(round, rnd, state) after each turn, for traces.
    """
    links.begin(exchange)
    pieces = _Pieces(call, plan, exchange.piece)
    upcoming = turns(pieces.rounds, pieces.count)
    turn, posted = next(upcoming, None), False
    while turn is not None:
        if not posted:
            links.post(exchange, turn, pieces[turn].leaving(turn.rnd))
        following = next(upcoming, None)
        # The next turn goes out before this one is taken, unless it needs what comes now.
        posted = following is not None and following.segment != turn.segment
        if posted:
            links.post(exchange, following, pieces[following].leaving(following.rnd))
        piece = pieces[turn]
        piece.apply(turn.rnd, links.take(exchange, turn, piece.wants(turn.rnd)))
        links.release(exchange, turn)
        if observer is not None:
            observer(turn.round, turn.rnd, piece.state)
        if turn.last:
            pieces.finish(turn.segment)
        turn = following
    call.complete()


class _Pieces:
    """The segments of a call: the pieces of all its chunks, made when first needed."""

    def __init__(self, call, plan, most):
        self.call = call
        self.sources, self.targets = call.bind(plan.chunks)
        self.elements = most // call.dtype.itemsize
        sizes = [t.numel() for t in (*self.sources.values(), *self.targets.values())]
        self.count = max(1, -(-max(*sizes, call.foreign or 0) // self.elements))
        self._open = {}
        self._rounds = plan.rounds
        if not plan.rounds:  # one rank alone
            self.count = 1
            self.finish(0)

    def rounds(self, segment):
        """The rounds of a segment.

        Where only the two ends of a message know its length, only they can know that it has no
        more pieces: such messages are left out.
        """
        if segment == 0 or self.call.foreign is not None:
            return self._rounds
        begin = segment * self.elements
        return [rnd.where(lambda chunk: self._size(chunk) > begin) for rnd in self._rounds]

    def _size(self, chunk):
        return (self.sources if chunk in self.sources else self.targets)[chunk].numel()

    def __getitem__(self, turn):
        piece = self._open.get(turn.segment)
        if piece is None:
            piece = self._open[turn.segment] = self._cut(turn.segment)
        return piece

    def _cut(self, segment):
        if self.count == 1:
            return _Piece(self.call, self.sources, self.targets, self.call.foreign)
        begin, end = segment * self.elements, (segment + 1) * self.elements
        foreign = self.call.foreign
        if foreign is not None:
            foreign = max(0, min(end, foreign) - begin)
        return _Piece(
            self.call,
            {chunk: t[begin:end] for chunk, t in self.sources.items()},
            {chunk: t[begin:end] for chunk, t in self.targets.items()},
            foreign,
        )

    def finish(self, segment):
        """A segment has had its last round."""
        piece = self._open.pop(segment, None) or self._cut(segment)
        piece.finish()


class _Piece:
    """One segment on its way through the rounds."""

    def __init__(self, call, sources, targets, foreign):
        self.call = call
        self.targets = targets
        self.foreign = foreign
        self.state = dict(sources)
        self.places = {}

    def leaving(self, rnd):
        """What leaves in a round, {chunk: tensor}."""
        state = self.state
        return {chunk: state[chunk] for chunk in rnd.published}

    def wants(self, rnd):
        """Of each chunk that comes in a round: elements, dtype, and where it belongs."""
        wants = {}
        dtype = self.call.dtype
        for key in rnd.places:
            chunk = key[1]
            numel = self.numel(chunk)
            place = None
            if key in rnd.copies and numel is not None and chunk not in rnd.published:
                place = self.place(chunk, numel)
            wants[key] = (numel, dtype, place)
        return wants

    def numel(self, chunk):
        """How many elements a chunk has, as far as this rank can know; else None."""
        known = self.state.get(chunk)
        if known is None:
            known = self.targets.get(chunk)
        return self.foreign if known is None else known.numel()

    def place(self, chunk, numel):
        """Where new values of a chunk are written."""
        place = self.places.get(chunk)
        if place is None:
            place = self.targets.get(chunk)
            if place is None or place.numel() != numel:
                place = scratch(numel, self.call.dtype)
            self.places[chunk] = place
        return place

    def apply(self, rnd, arrived):
        """Write what came in, after all of it has come."""
        for key in rnd.copies:
            value, chunk = arrived[key], key[1]
            place = self.place(chunk, value.numel())
            self.state[chunk] = place if place is value else place.copy_(value)
        for chunk, ranks in rnd.reduces.items():
            own = self.state[chunk]
            operands = [arrived.get((rank, chunk), own) for rank in ranks]
            out = self.place(chunk, own.numel())
            combine(self.call.reducer.combine, out, operands)
            self.state[chunk] = out

    def finish(self):
        """Bring every chunk to its target."""
        for chunk, target in self.targets.items():
            if not target.numel():
                continue  # perhaps nothing came: of this chunk there was nothing left
            value = self.state[chunk]
            if value.data_ptr() != target.data_ptr():
                if value.numel() != target.numel():
                    raise ValueError(
                        f"{self.call.words}: {value.numel()} elements came for an output of "
                        f"{target.numel()}"
                    )
                target.copy_(value)


def combine(pair, out, operands):
    """Out = the operands combined from left to right by `pair(out, left, right)`.

    `out` may be one of them: the sum grows elsewhere until the last operand has been read.
    """
    if len(operands) == 2:
        if out.numel() <= SERIAL or torch.get_num_threads() == 1:
            pair(out, *operands)
            return
    total = scratch(min(SERIAL, out.numel()), out.dtype)
    for begin in range(0, out.numel(), SERIAL):
        block = slice(begin, begin + SERIAL)
        here = total[: min(SERIAL, out.numel() - begin)]
        left = operands[0][block]
        for operand in operands[1:-1]:
            pair(here, left, operand[block])
            left = here
        pair(out[block], left, operands[-1][block])
