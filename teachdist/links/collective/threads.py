"""Links between threads of one process: a message is handed over in memory.

Made for tests and for looking closely: ranks that are threads start at once, and the same
executor runs on them. The sender's chunks are copied when posted, as a wire would do.
"""

import threading
from collections import deque

from teachdist.links.collective.tcp import check_length, check_place
from teachdist.links.errors import PeerLost
from teachdist.links.transport.raw import scratch, view_bytes

_rooms = {}  # secret of a rank's card -> its ThreadLinks
_rooms_lock = threading.Lock()


class ThreadLinks:
    """The links of one rank to peers that live in the same process."""

    def __init__(self, peers):
        self.peers = peers
        self._inbox = {}
        self._news = threading.Condition()
        with _rooms_lock:
            _rooms[peers.secret] = self

    def post(self, exchange, step):
        """Put a copy of each message into the peer's inbox."""
        turn = step.turn
        for peer, numbers in turn.rnd.sends.items():
            with _rooms_lock:
                other = _rooms.get(self.peers.card(peer, exchange.deadline).secret)
            if other is None:
                raise PeerLost(f"rank {peer} has left the group", peer)
            header = exchange.header.at(turn.round, turn.segment)
            message = (header, exchange.words, [bytes(step.leaving[c]) for c in numbers])
            with other._news:
                other._inbox.setdefault(self.peers.rank, deque()).append(message)
                other._news.notify_all()

    def take(self, exchange, step):
        """Wait for the step's messages; see `TcpLinks.take`."""
        turn, wants = step.turn, step.wants
        arrived, missing = {}, dict(turn.rnd.takes)
        while True:
            with self._news:
                for peer in [p for p in missing if self._inbox.get(p)]:
                    header, words, copies = self._inbox[peer].popleft()
                    check_place(header, exchange, turn, peer, words)
                    for chunk, copy in zip(missing.pop(peer), copies, strict=True):
                        want = wants[peer, chunk]
                        check_length(want, len(copy), peer)
                        room = want.room
                        if room is None:
                            arrived[peer, chunk] = tensor = scratch(want.numel, want.dtype)
                            room = view_bytes(tensor)
                        room[:] = copy
                if not missing:
                    return arrived
                heard = self._news.wait(exchange.deadline.tick())
            if not heard:
                exchange.deadline.over(missing)

    def release(self, exchange, step):
        """Nothing to do: what was taken is a copy."""

    def close(self):
        """Leave: later messages to this rank fail."""
        with _rooms_lock:
            _rooms.pop(self.peers.secret, None)
