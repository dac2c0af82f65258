"""Links between threads of one process: a message is handed over in memory.

Made for tests and for looking closely: ranks that are threads start at once, and the same
executor runs on them. The sender's bytes are copied when posted, as a wire would do.
"""

import threading
from collections import deque

from teachdist.links.errors import PeerLost
from teachdist.links.tcp import check_lengths, check_place

_rooms = {}  # secret of a rank's card -> its ThreadLinks
_rooms_lock = threading.Lock()


class ThreadLinks:
    """The links of one rank to peers that live in the same process."""

    def __init__(self, roster):
        self.roster = roster
        self._inbox = {}
        self._news = threading.Condition()
        with _rooms_lock:
            _rooms[roster.secret] = self

    def post(self, header, words, outgoing, patience):
        """Put a copy of each message into the peer's inbox."""
        for peer, (chunks, with_words) in outgoing.items():
            with _rooms_lock:
                room = _rooms.get(self.roster.card(peer, patience).secret)
            if room is None:
                raise PeerLost(f"rank {peer} has left the group", peer)
            said = words.decode() if with_words else ""
            copies = [bytes(c) for c in chunks]
            message = header.sized(len(said), len(chunks), sum(map(len, copies)))
            with room._news:
                room._inbox.setdefault(self.roster.rank, deque()).append((message, said, copies))
                room._news.notify_all()

    def take(self, header, incoming, patience):
        """Wait for the round's messages; the answer has each chunk's bytes."""
        results = {}
        while len(results) < len(incoming):
            with self._news:
                for peer, wants in incoming.items():
                    if peer in results or not self._inbox.get(peer):
                        continue
                    message, words, copies = self._inbox[peer].popleft()
                    check_place(message, header, peer, words)
                    buffers = check_lengths([len(c) for c in copies], wants, message, peer)
                    for buffer, copy in zip(buffers, copies, strict=True):
                        buffer[:] = copy
                    results[peer] = buffers
                missing = incoming.keys() - results.keys()
                if not missing or self._news.wait(patience.tick()):
                    continue
            patience.over(missing)
        return results

    def close(self):
        """Leave: later messages to this rank fail."""
        with _rooms_lock:
            _rooms.pop(self.roster.secret, None)
