"""How long are the chunks that a rank only passes on?

In most collectives all ranks know all lengths. In an all_to_all only the two ends of a message know
its length, and an algorithm that forwards blocks (Bruck's) needs it in between. Then, and only
then, every rank first tells all others the lengths of what it gives: one small round more.
"""

import torch

from teachdist.backend.execution.plan import own_chunks, plan
from teachdist.backend.execution.script import play, write
from teachdist.links.collective.exchange import Exchange


def lengths(call, todo, links, exchange, sources):
    """{chunk: number of elements} of all chunks that some rank has at the start of `call`."""
    rank, size, _, hosts = todo.place
    round_ = plan("all_gather", "direct", rank, size, 0, hosts)
    given = [_given(todo, r) for r in range(size)]
    mine = torch.tensor([sources[chunk].numel() for chunk in given[rank]])
    theirs = {r: torch.empty(len(chunks), dtype=torch.int64) for r, chunks in enumerate(given)}
    before = Exchange(exchange.header, round_.width, exchange.segment)
    before.begin(exchange.header.sequence, exchange.words, lambda: exchange.deadline)
    script = write(round_.turns, {rank: mine}, theirs, None, torch.int64)
    play(script, call, links, before)
    exchange.first += len(round_.turns)
    return {
        chunk: numel
        for r, chunks in enumerate(given)
        for chunk, numel in zip(chunks, theirs[r].tolist(), strict=True)
    }


def _given(todo, rank):
    _, size, root, _ = todo.place
    return sorted(own_chunks(todo.op, rank, size, root, todo.chunks, end=False))
