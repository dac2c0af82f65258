"""How bytes move between two ranks.

A *link* joins two ranks. The executor of a collective sees all links of its rank at once, as a
`Links` object with three verbs per turn: `post` hands over what goes out, `take` waits for what
must come in, `release` says that it has been used. Which kind of link serves a peer is decided
once, from what the ranks tell each other through the store (`connect.py`): ranks of one host
share memory (`shm.py`), ranks on two hosts use sockets (`tcp.py`), threads of one process hand
messages over (`threads.py`).

Nothing here knows collectives or process groups: a message is a `Header` and flat tensors.
"""

from teachdist.links.connect import Links
from teachdist.links.errors import Interrupted, LinkError, Mismatch, PeerLost, Stranger, TimedOut
from teachdist.links.exchange import Exchange
from teachdist.links.header import Header
from teachdist.links.mail import Mail
from teachdist.links.roster import Card, Roster
from teachdist.links.waiting import Patience

__all__ = [
    "Card",
    "Exchange",
    "Header",
    "Interrupted",
    "LinkError",
    "Links",
    "Mail",
    "Mismatch",
    "Patience",
    "PeerLost",
    "Roster",
    "Stranger",
    "TimedOut",
]
