"""Sentences about ranks: one place that words them, so that they sound alike everywhere."""

import sys
from pathlib import Path

import torch

_OURS = str(Path(__file__).parents[1])
_TORCH = str(Path(torch.__file__).parent)
_SKIPPED = (_OURS, _TORCH, "<frozen", "<string>", "contextlib.py")


def call_site():
    """Where the user's code made the present call: "train.py:31"."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(_SKIPPED):
            return f"{short_name(name)}:{frame.f_lineno}"
        frame = frame.f_back
    return "unknown place"


def short_name(name):
    """A file's name as a reader knows it; cells of a notebook are called "cell"."""
    if "ipykernel" in name or name.startswith("<ipython-input"):
        return "cell"
    return name.rpartition("/")[2]


def mismatch(group, sequence, rank, mine, peer, theirs):
    """The sentence about two ranks that are in different calls."""
    where = theirs or "another call"
    return (
        f'group "{group}", call {sequence}: rank {peer} is in {where}; rank {rank} is in {mine}. '
        "Collectives match by order: make every rank of the group take the same branch."
    )


def whereabouts(ranks, roster, name):
    """Where each of `ranks` (group ranks) is: "rank 1 is in user code ...". `name(r)` names it."""
    said = []
    for rank in ranks:
        position = roster.position(rank)
        if roster.gone(rank):
            last = f"; last seen {position.words()}" if position is not None else ""
            said.append(f"{name(rank)} is dead{last}")
        elif position is not None:
            said.append(f"{name(rank)} is {position.words()}")
        elif roster.known(rank) is None:
            said.append(f"{name(rank)} has not joined the group")
        else:
            said.append(f"{name(rank)} is on another host")
    return "; ".join(said)
