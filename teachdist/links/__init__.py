"""How bytes move between two ranks.

A *link* joins two ranks. The executor of a collective sees all links of its rank at once, as a
`Links` object with two verbs per round: `post` hands over what goes out, `take` waits for what
must come in. Which kind of link serves a peer is decided once, from what the ranks tell each
other through the store (`connect.py`): threads of one process hand messages over in memory
(`threads.py`), ranks elsewhere use sockets (`tcp.py`).

Nothing here knows tensors, collectives or torch's classes: a message is a `Header` and bytes.
"""

from teachdist.links.connect import Card, Links, Roster
from teachdist.links.errors import Interrupted, LinkError, Mismatch, PeerLost, Stranger, TimedOut
from teachdist.links.header import Header
from teachdist.links.mail import Mail
from teachdist.links.waiting import Patience

__all__ = [
    "Card",
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
