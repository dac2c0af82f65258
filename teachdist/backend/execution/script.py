"""A call written down: the rounds of its plan, with tensors in place of chunks.

The *state* says for each chunk which tensor holds its present value.

- At the start that is the caller's own input, which is only read.
- The first value that a round writes goes to the chunk's place: its target, or scratch if the
  chunk only passes through this rank.
- At the end every target that is not the chunk's place gets a copy.

So inputs are never modified, and nothing is copied that need not be. How the state changes depends
on the plan and on the sizes alone: it can be followed to the end before anything is sent. What
remains is a list of steps that knows neither chunks nor algorithms.

    plan      Send(1, 0), Reduce(1, 0)
    script    publish the bytes of x | take 8 bytes from rank 1 | x = x + them

A call that comes again with the same tensors is played from its old script: see
`calls/persistent.py`.

Contributions that meet in one round are combined in order of rank, the rank's own in its place:
all ranks that combine the same chunks get the same bits. They are combined straight from where the
links show them; for shared memory that is the sender's own.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from teachdist.links.collective.exchange import WIDE_SEGMENT, Want
from teachdist.links.collective.exchange import Step as LinkStep
from teachdist.links.transport.raw import scratch, view_bytes

# Elements that a torch operation takes at once. Beyond this many it would spread over threads,
# which for short operations costs far more than it gains when every rank has threads of its own.
SERIAL = 32768
SMALL = 1 << 16  # bytes of a sum that may have room of its own in a script


@dataclass(slots=True)
class Step(LinkStep):
    """What this rank does in one turn."""

    copies: list = field(default_factory=list)  # ((peer, chunk), tensor): where it goes
    sums: list = field(default_factory=list)  # of Sum
    state: dict | None = None  # for traces: {chunk: tensor} afterwards


class Sum(NamedTuple):
    """Contributions that meet. operands: in order of rank, tensors or (peer, chunk).

    total: where the sum grows until the last operand has been read; None: room made when needed.
    """

    out: object
    operands: list
    total: object


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
    writer = Writer(sources, targets, foreign, dtype, traced)
    steps = [writer.step(turn) for turn in turns_]
    return Script(steps, writer.finals(), writer.places, writer.scratch)


class Writer:
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
        step = Step(turn, {chunk: view_bytes(self._value(chunk)) for chunk in rnd.published}, {})
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
            if own.numel():
                step.sums.append(Sum(out, operands, self._total(out, own, operands)))
        if self.traced:
            step.state = dict(self.state)
        return step

    def _value(self, chunk):
        value = self.state.get(chunk)
        if value is None and self._numel(chunk) == 0:  # no more pieces of it: none came
            return scratch(0, self.dtype)
        return self.state[chunk]

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

    def _total(self, out, own, operands):
        """Where a sum may grow: in `out` itself, unless `own`, still to be read, is there."""
        begins_with_own = any(type(one) is not tuple for one in operands[:2])
        if begins_with_own or out.data_ptr() != own.data_ptr():
            return out
        if out.nbytes > SMALL:
            return None
        self.scratch += out.nbytes
        return scratch(out.numel(), out.dtype)

    def finals(self):
        """What must be copied at the end, as it is not yet where it belongs."""
        found = []
        for chunk, target in self.targets.items():
            if not target.numel():  # a segment in which this chunk has no more pieces
                continue
            value = self.state[chunk]
            if value.numel() != target.numel():
                raise ValueError(
                    f"chunk {chunk}: {value.numel()} elements for an output of {target.numel()}"
                )
            if value is not target and value.data_ptr() != target.data_ptr():
                short = target.nbytes <= WIDE_SEGMENT and target.dtype == value.dtype
                found.append((view_bytes(target), view_bytes(value)) if short else (target, value))
        return found


def play(script, call, links, exchange, observer=None):
    """Run a script from its beginning to its end."""
    for step in script.steps:
        if step.leaving:
            links.post(exchange, step)
        if step.leaving or step.wants or observer is not None:
            take(step, call, links, exchange, observer)
    if script.finals:
        copy_all(script.finals)


def copy_all(finals):
    """Bring what is not yet where it belongs to its target.

    Bytes are the quickest, but hold the interpreter's lock: no longer than for a segment.
    """
    for target, value in finals:
        if type(target) is memoryview:
            target[:] = value
        else:
            copy(target, value)


def copy(target, value):
    """target.copy_(value), for flat tensors; by this thread alone (see SERIAL)."""
    if target.numel() <= SERIAL or torch.get_num_threads() == 1:
        target.copy_(value)
        return
    for part, piece in zip(target.split(SERIAL), value.split(SERIAL), strict=True):
        part.copy_(piece)


def take(step, call, links, exchange, observer):
    """Wait for what comes in a turn, and work it in."""
    arrived = links.take(exchange, step)
    for way, place in step.copies:
        copy(place, arrived[way])
    for out, operands, total in step.sums:
        values = [arrived[one] if type(one) is tuple else one for one in operands]
        combine(call.reducer.combine, out, values, total)
    if step.wants:
        links.release(exchange, step)
    if observer is not None:
        observer(step.turn.round, step.turn.rnd, step.state)


def combine(pair, out, operands, total=None):
    """Out = the operands combined from left to right by `pair(left, right, out=out)`.

    `out` may be one of them: the sum grows in `total` until the last operand has been read.
    """
    if out.numel() > SERIAL and (len(operands) > 2 or torch.get_num_threads() > 1):
        _combine_blocks(pair, out, operands)
        return
    if total is None and len(operands) > 2:
        total = scratch(out.numel(), out.dtype)
    left = operands[0]
    for operand in operands[1:-1]:
        pair(left, operand, out=total)
        left = total
    pair(left, operands[-1], out=out)


def _combine_blocks(pair, out, operands):
    """Combine block by block: what has been added stays in the processor's cache."""
    total = scratch(SERIAL, out.dtype)
    for begin in range(0, out.numel(), SERIAL):
        block = slice(begin, begin + SERIAL)
        here = total[: min(SERIAL, out.numel() - begin)]
        combine(pair, out[block], [operand[block] for operand in operands], here)
