"""Sends without buffers, as NCCL has them: TEACHDIST_RULES=nccl.

A send is over when its bytes are out, so two ranks that both send first get along here and hang on
NCCL. With this variable set on all ranks they hang here as well, and are told. A receive then sends
a *notice* to the rank that it names, an empty message under a tag that no user can have, and a send
is not over before its notice has come:

    rank 0   send ---- waits for the notice of rank 1's receive, which waits for ...
    rank 1   send ---- waits for the notice of rank 0's receive

It costs one small message for each receive. What else NCCL asks for a trace tells, or a rehearsal:
`teachdist.rules`.
"""

import os

from teachdist.backend.p2p import requests
from teachdist.backend.p2p.requests import Message
from teachdist.backend.work import AllWorks

VARIABLE = "TEACHDIST_RULES"


def is_on():
    """Whether sends wait for their receives. Raises ValueError if the variable says otherwise."""
    said = os.environ.get(VARIABLE, "")
    if said not in ("", "nccl"):
        raise ValueError(
            f"{VARIABLE}={said}: only nccl can be tried on real ranks; for gloo and mpi use "
            'teachdist.rehearse(..., rules="...") or a trace\'s check'
        )
    return bool(said)


def send(communicator, message, dst, tag, outputs, closing):
    """A send that is over when its receive has been posted; a Work."""
    notice = Message(memoryview(bytearray()), message.words, 0)
    came = requests.receive(communicator, notice, dst, _notices(tag))
    return AllWorks([came, requests.send(communicator, message, dst, tag, outputs, closing)])


def receive(communicator, message, src, tag, outputs, closing):
    """A receive that lets its sender go on; a Work."""
    if src is None:
        raise ValueError(f"{message.words}: by {VARIABLE}=nccl a receive must name its source")
    work = requests.receive(communicator, message, src, tag, outputs, closing)
    requests.send(communicator, Message(memoryview(b""), message.words, 0), src, _notices(tag))
    return work


def _notices(tag):
    return -1 - tag
