"""Who waits for which keys: the book that the TCPStore server keeps.

A client waits for *all* of a set of keys and has at most one wait open. Three things end it: the
last missing key appears, the client takes it back, or the client is gone. The book only remembers;
whoever is done is returned, and the server answers them.

A key that appears wakes everybody who misses it. A value pushed to a queue is different: it serves
one, so it wakes one, the first that came. That one now has a *turn*. Should it not use it, because
its time was up or it died in that moment, the turn goes on to the next; otherwise the value would
lie there while others sleep.
"""

import time


class Waits:
    """Clients (any hashable objects) and the keys that they wait for."""

    def __init__(self):
        self._missing = {}  # client -> the keys it still misses
        self._since = {}  # client -> when its wait began
        self.keys = {}  # key -> the clients that miss it, first come first
        self._turn = {}  # client -> the queue for which it was woken

    def open(self, client, keys):
        """Begin to wait for keys that do not exist yet; an earlier wait is forgotten."""
        self.close(client)
        self._missing[client] = set(keys)
        self._since[client] = time.monotonic()
        for key in self._missing[client]:
            self.keys.setdefault(key, []).append(client)

    def close(self, client):
        """End the client's wait, if it has one."""
        for key in self._missing.pop(client, ()):
            self.keys[key].remove(client)
            if not self.keys[key]:
                del self.keys[key]
        self._since.pop(client, None)

    def is_open(self, client):
        """Whether the client waits."""
        return client in self._missing

    def appeared(self, key):
        """The key exists now. Returns the clients that miss nothing any more."""
        if key not in self.keys:
            return []
        done = []
        for client in list(self.keys[key]):
            done += self._strike(client, key)
        return done

    def pushed(self, key):
        """The queue has one value more. Returns whom to wake: a list of one client or none."""
        if key not in self.keys:
            return []
        client = self.keys[key][0]
        self._turn[client] = key
        return self._strike(client, key)

    def has_turn(self, client):
        """Whether the client was woken for a queue and has done nothing since."""
        return client in self._turn

    def take_turn(self, client):
        """The client does something: it uses or loses its turn. Returns the queue, or None."""
        return self._turn.pop(client, None)

    def report(self):
        """For each client that waits: the client, its missing keys, and for how many seconds."""
        now = time.monotonic()
        return [
            (client, sorted(keys), now - self._since[client])
            for client, keys in self._missing.items()
        ]

    def _strike(self, client, key):
        self._missing[client].discard(key)
        self.keys[key].remove(client)
        if not self.keys[key]:
            del self.keys[key]
        if self._missing[client]:
            return []
        self.close(client)
        return [client]
