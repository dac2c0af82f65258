"""What can go wrong between two ranks, said in terms of ranks.

The backend turns these into the exception classes that torch.distributed documents.
"""


class LinkError(Exception):
    """A failure on a link; `rank` is the peer (rank in the group) that it concerns, if any."""

    def __init__(self, message, rank=None):
        super().__init__(message)
        self.rank = rank


class PeerLost(LinkError):
    """The peer closed its connection, or its process is gone."""


class Mismatch(LinkError):
    """The peer is in another call than this rank; `theirs` describes the peer's call.

    number: of that call, when what shows the difference is left from an earlier one.
    """

    def __init__(self, message, rank, theirs="", number=None):
        super().__init__(message, rank)
        self.theirs = theirs
        self.number = number


class TimedOut(LinkError):
    """Nothing came within the time allowed; `ranks` are those that were waited for."""

    def __init__(self, message, ranks=()):
        super().__init__(message, next(iter(ranks), None))
        self.ranks = tuple(ranks)


class Interrupted(LinkError):
    """Another rank (`rank`) failed and released the others; the message says what it said."""


class ProtocolError(LinkError):
    """Bytes that no rank of this group can have sent."""
