"""The executor: runs the rounds of any algorithm for any collective, with no branch for either.

A call says which chunks this rank holds at the start (`sources`) and where chunks must end
(`targets`); a plan says what happens in each round. Between the two stands the *state*: for
each chunk the tensor that holds its present value.

- At the start that is the caller's own input, which is only read.
- The first value that a round writes goes to the chunk's place: its target, or scratch if the
  chunk only passes through this rank (or if its target may not be touched yet).
- At the end every target that is not the chunk's place gets a copy.

So inputs are never modified, nothing is copied that need not be, and ring, tree and the
learner's own algorithm run on the same forty lines.

Contributions that meet in one round are combined in order of rank, the rank's own in its place:
all ranks that combine the same chunks get the same bits.
"""

from dataclasses import replace

from teachdist.backend.memory import scratch, view_bytes


def execute(call, plan, links, header, patience, observer=None):
    """Run `call` by `plan`. Raises what the links raise; then the outputs are undefined.

    observer: called as observer(round, sent, taken, state) after each round, for traces.
    """
    run = _Run(call, plan)
    told = set()
    words = call.words.encode()
    for number, rnd in enumerate(plan.rounds):
        here = replace(header, round=number)
        outgoing = {
            peer: ([run.bytes_of(chunk) for chunk in chunks], peer not in told)
            for peer, chunks in rnd.sends.items()
        }
        told |= rnd.sends.keys()
        links.post(here, words, outgoing, patience)
        landing = {
            peer: [run.landing(rnd, peer, chunk) for chunk in chunks]
            for peer, chunks in rnd.takes.items()
        }
        wanted = {peer: [want for want, _ in rows] for peer, rows in landing.items()}
        taken = links.take(here, wanted, patience)
        run.apply(rnd, landing, taken)
        if observer is not None:
            observer(number, rnd, run.state)
    run.finish()


class _Run:
    """The state of one call."""

    def __init__(self, call, plan):
        self.call = call
        sources, self.targets = call.bind(plan.chunks)
        self.state = dict(sources)
        self.sources = sources
        self.places = {}

    def place(self, chunk, numel):
        """Where new values of a chunk are written."""
        if chunk not in self.places:
            target = self.targets.get(chunk)
            if target is None or target.numel() != numel:
                target = scratch(numel, self.call.dtype)
            self.places[chunk] = target
        return self.places[chunk]

    def bytes_of(self, chunk):
        return view_bytes(self.state[chunk])

    def numel(self, chunk):
        """How many elements a chunk has, as far as this rank can know; else None."""
        for known in (self.state, self.targets):
            if chunk in known:
                return known[chunk].numel()
        return self.call.foreign

    def landing(self, rnd, peer, chunk):
        """((bytes expected, buffer), tensor): where a chunk that comes in is received."""
        numel = self.numel(chunk)
        if numel is None:
            return (None, None), None
        in_place = (peer, chunk) in rnd.copies and chunk not in rnd.sent
        tensor = self.place(chunk, numel) if in_place else scratch(numel, self.call.dtype)
        view = view_bytes(tensor)
        return (len(view), view), tensor

    def apply(self, rnd, landing, taken):
        """Write what came in, after all of it has come."""
        arrived = {}
        for peer, chunks in rnd.takes.items():
            for chunk, (_, tensor), data in zip(chunks, landing[peer], taken[peer], strict=True):
                if tensor is None:
                    tensor = self._sized_by_message(data)
                if (peer, chunk) not in rnd.copies:
                    arrived[peer, chunk] = tensor
                elif self.places.get(chunk) is not tensor:
                    self.state[chunk] = self.places[chunk] = tensor
                else:
                    self.state[chunk] = tensor
        for chunk, ranks in rnd.reduces.items():
            self._combine(chunk, [arrived.get((rank, chunk)) for rank in ranks])

    def _combine(self, chunk, operands):
        own = self.state[chunk]
        operands = [own if operand is None else operand for operand in operands]
        out = self.place(chunk, own.numel())
        if len(operands) == 2:
            self.call.reducer.combine(out, *operands)
        else:
            # `out` may be the own operand, which has its turn later: sum elsewhere first.
            total = scratch(own.numel(), self.call.dtype)
            self.call.reducer.combine(total, *operands[:2])
            for operand in operands[2:-1]:
                self.call.reducer.combine(total, total, operand)
            self.call.reducer.combine(out, total, operands[-1])
        self.state[chunk] = out

    def _sized_by_message(self, data):
        tensor = scratch(len(data) // self.call.dtype.itemsize, self.call.dtype)
        view_bytes(tensor)[:] = data
        return tensor

    def finish(self):
        """Bring every chunk to its target."""
        for chunk, target in self.targets.items():
            value = self.state[chunk]
            if value.data_ptr() != target.data_ptr() and target.numel():
                if value.numel() != target.numel():
                    raise ValueError(
                        f"{self.call.words}: {value.numel()} elements came for an output of "
                        f"{target.numel()}"
                    )
                target.copy_(value)
        self.call.complete()
