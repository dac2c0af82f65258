"""How bytes move between two ranks.

A *link* joins two ranks. The executor of a collective sees all links of its rank at once, as a
`Links` object with three verbs per turn: `post` hands over what goes out, `take` waits for what
must come in, `release` says that it has been used. Which kind of link serves a peer is decided
once, from what the ranks tell each other through the store (`collective/links.py`): ranks of one
host share memory (`collective/shm.py`), ranks on two hosts use sockets (`collective/tcp.py`),
threads of one process hand messages over (`collective/threads.py`).

Nothing here knows collectives or process groups: a message is a `Header` and flat tensors.
"""

from teachdist.links.collective.exchange import Exchange
from teachdist.links.collective.links import Links
from teachdist.links.errors import (
    Interrupted,
    LinkError,
    Mismatch,
    PeerLost,
    ProtocolError,
    TimedOut,
)
from teachdist.links.p2p.messages import Messages
from teachdist.links.rendezvous.peers import Card, Peers
from teachdist.links.transport.header import Header
from teachdist.links.waiting import Deadline

__all__ = [
    "Card",
    "Deadline",
    "Exchange",
    "Header",
    "Interrupted",
    "LinkError",
    "Links",
    "Messages",
    "Mismatch",
    "PeerLost",
    "Peers",
    "ProtocolError",
    "TimedOut",
]
