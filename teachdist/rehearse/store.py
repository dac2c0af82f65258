"""The store of a rehearsal: one table in memory, and waits that pass the baton.

All of torch's ways to get a store lead here while a rehearsal runs: TCPStore and FileStore by what
they name (host and port, or the path), the rendezvous of init_process_group by its URL. A
HashStore is of one rank alone, as it would be of one process.
"""

import sys

from torch.distributed import DistStoreError, QueueEmptyError

from teachdist.diagnose.call_site import is_users, place
from teachdist.rehearse.actors import Signal
from teachdist.stores.base import Store, blob, integer, text, texts, timed_out
from teachdist.stores.table import NotACounterError, Table


class Shelf:
    """What all handles of one store share."""

    def __init__(self, job, name):
        self.job, self.store_name = job, name
        self.table = Table()
        self.changed = Signal()
        self.times = {}  # key -> when it appeared

    def has_changed(self, key):
        """A key has a value: tell who waits."""
        self.times.setdefault(key, self.job.scheduler.running.rank.clock.now())
        self.changed.notify()


class VirtualStore(Store):
    """A rank's handle of a store."""

    def __init__(self, shelf):
        super().__init__()
        self._shelf = shelf
        shelf.job.keep.append(self)

    @property
    def name(self):
        """How messages call it: by the name of the store that it stands for."""
        return self._shelf.store_name

    def clone(self):
        """Another handle of this store."""
        return VirtualStore(self._shelf)

    def __del__(self):
        """Nothing to give back."""

    def _turn(self, key, call):
        """Where orders are explored, the program's own calls come one by one, in any order."""
        orders, frame = self._shelf.job.orders, sys._getframe(2)
        if orders is not None and is_users(frame.f_code.co_filename):
            site = place(frame.f_code.co_filename, frame.f_lineno)
            orders.turn((self.name, key), f"{self.name}.{call}({key!r}) at {site}", site)

    # Values

    def set(self, key, value):
        """Put a value (str or bytes) under a key."""
        self._turn(text(key), "set")
        self._shelf.table.set(text(key), blob(value))
        self._shelf.has_changed(text(key))

    def get(self, key):
        """The key's value as bytes; waits for it up to the time-out."""
        key = text(key)
        self.wait_for([key], self.seconds(), f"{self.name}.get({key!r})")
        self._turn(key, "get")
        return self._shelf.table.get(key) or b""

    def add(self, key, amount):
        """Count `amount` on to a counter; its new value."""
        self._turn(text(key), "add")
        try:
            value = self._shelf.table.add(text(key), integer(amount, f"{self.name}.add", "amount"))
        except NotACounterError as error:
            raise DistStoreError(f"{self.name}.add({key!r}, {amount}): {error}") from error
        self._shelf.has_changed(text(key))
        return value

    def append(self, key, value):
        """Put `value` at the end of the key's value."""
        self._turn(text(key), "append")
        self._shelf.table.append(text(key), blob(value))
        self._shelf.has_changed(text(key))

    def compare_set(self, key, expected_value, desired_value):
        """Replace `expected_value` ("" for an absent key); the value the key has then."""
        self._turn(text(key), "compare_set")
        value = self._shelf.table.compare_set(text(key), blob(expected_value), blob(desired_value))
        self._shelf.has_changed(text(key))
        return value

    # Keys

    def check(self, keys):
        """Whether all keys exist."""
        self._turn(" ".join(texts(keys, "check")), "check")
        return not self._missing(texts(keys, "check"))

    def _missing(self, keys):
        return [key for key in keys if not self._shelf.table.has(key)]

    def wait_for(self, keys, seconds, what):
        """Wait for all keys; `what` names the call."""
        self._wait(lambda: not self._missing(keys), keys, seconds, what)

    def _wait(self, ready, keys, seconds, what):
        shelf = self._shelf
        clock = shelf.job.scheduler.running.rank.clock
        clock.enter()
        try:
            done = shelf.job.scheduler.wait(
                shelf.changed, ready, seconds, what, patient=True, subject=(self, keys)
            )
            if done:  # a rank whose clock is behind sees it when it is there
                appeared = max((shelf.times.get(key, 0.0) for key in keys), default=0.0)
                clock.advance(appeared, "wait", what)
        finally:
            clock.leave()
        if not done:
            raise timed_out(what, seconds, self._missing(keys) or keys)

    def delete_key(self, key):
        """Delete a key; whether there was one."""
        self._turn(text(key), "delete_key")
        self._shelf.times.pop(text(key), None)
        return self._shelf.table.delete(text(key))

    def num_keys(self):
        """Number of keys."""
        return len(self._shelf.table.values)

    def list_keys(self):
        """All keys, in no particular order."""
        return list(self._shelf.table.values)

    # Queues

    def queue_push(self, key, value):
        """Put a value at the end of a queue."""
        self._shelf.table.push(text(key), blob(value))
        self._shelf.has_changed(text(key))

    def queue_pop(self, key, block=True):
        """Take the oldest value of a queue; with `block`, wait for one up to the time-out."""
        key, table = text(key), self._shelf.table
        if not block:
            self._turn(key, "queue_pop")
        if not block and not table.length(key):
            raise QueueEmptyError(f"{self.name}.queue_pop({key!r}): the queue is empty")
        what = f"{self.name}.queue_pop({key!r})"
        self._wait(lambda: table.length(key), [key], self.seconds(), what)
        self._turn(key, "queue_pop")
        self._wait(lambda: table.length(key), [key], self.seconds(), what)
        return table.pop(key)

    def queue_len(self, key):
        """Number of values in the queue."""
        self._turn(text(key), "queue_len")
        return self._shelf.table.length(text(key))
