"""HashStore: a store for the threads of one process.

Nothing to send and nobody to find: one table, one lock, and a bell (a condition) that rings
whenever something was put in. It is the place to see what a store *is*; the others only add
distance.

The one subtle thing is the queue. Whoever waits for a key wakes when it appears, all of them.
Whoever waits for a queue wakes alone: every pushed value is one ticket, and each waiter needs
one.
"""

import threading

from torch.distributed import DistStoreError, QueueEmptyError

from teachdist.stores.base import Deadline, Store, blob, integer, text, texts, timed_out
from teachdist.stores.table import NotACounterError, Table
from teachdist.stores.waits import Waits
from teachdist.stores.who import me


class HashStore(Store):
    """A store in the memory of this process, for its threads."""

    def __init__(self):
        super().__init__()
        self._table = Table()
        self._waits = Waits()
        self._bell = threading.Condition()

    def __repr__(self):
        return f"teachdist.stores.HashStore({self.num_keys()} keys)"

    def clone(self):
        """The store itself, as in torch: threads may use one at once."""
        return self

    # Values

    def set(self, key, value):
        """Put a value (str or bytes) under a key, over an earlier one."""
        self._change(text(key), lambda table, key: table.set(key, blob(value)))

    def get(self, key):
        """The key's value as bytes; waits for it up to the time-out.

        Raises:
            DistStoreError: nobody set it in time.
        """
        return self._values([text(key)], f"HashStore.get({key!r})")[0]

    def multi_get(self, keys):
        """The values of all keys, in order; waits for missing ones."""
        return self._values(texts(keys, "multi_get"), "HashStore.multi_get")

    def add(self, key, amount):
        """Count ``amount`` on to the counter ``key`` (made by the first call); the new value.

        Raises:
            DistStoreError: the key holds no counter.
        """
        amount = integer(amount, "HashStore.add", "amount")
        try:
            return self._change(text(key), lambda table, key: table.add(key, amount))
        except NotACounterError as error:
            raise DistStoreError(
                f"{me()}: HashStore.add({key!r}, {amount}): the key is no counter: {error}. "
                "Use another key for the counter, or delete_key() first."
            ) from error

    def append(self, key, value):
        """Put ``value`` at the end of the key's value; makes the key when it is absent."""
        self._change(text(key), lambda table, key: table.append(key, blob(value)))

    def compare_set(self, key, expected_value, desired_value):
        """Replace ``expected_value`` ("" for an absent key); returns the value the key has then."""
        expected, desired = blob(expected_value), blob(desired_value)
        return self._change(text(key), lambda table, key: table.compare_set(key, expected, desired))

    # Keys

    def check(self, keys):
        """Whether all keys exist (a queue that is not empty counts)."""
        with self._bell:
            return not self._missing(texts(keys, "check"))

    def wait_for(self, keys, seconds, what):
        """Wait for all keys; ``what`` names the call in the error."""
        with self._bell:
            self._wait(keys, seconds, what)

    def delete_key(self, key):
        """Delete a key; whether there was one."""
        with self._bell:
            return self._table.delete(text(key))

    def num_keys(self):
        """Number of keys; there is none for bookkeeping here."""
        return len(self._table.values)

    def list_keys(self):
        """All keys, in no particular order."""
        with self._bell:
            return list(self._table.values)

    # Queues

    def queue_push(self, key, value):
        """Put a value at the end of a queue."""
        with self._bell:
            self._table.push(text(key), blob(value))
            self._waits.pushed(key)
            self._bell.notify_all()

    def queue_pop(self, key, block=True):
        """Take the oldest value of a queue; with ``block``, wait for one up to the time-out.

        Raises:
            QueueEmptyError: there is none and ``block`` is False.
            DistStoreError: there was none in time.
        """
        key, deadline = text(key), Deadline(self.seconds())
        with self._bell:
            while (value := self._table.pop(key)) is None:
                if not block:
                    raise QueueEmptyError(f"HashStore.queue_pop({key!r}): the queue is empty")
                self._wait([key], deadline.left(), f"HashStore.queue_pop({key!r})")
            return value

    def queue_len(self, key):
        """Number of values in the queue; 0 when there is no such queue."""
        with self._bell:
            return self._table.length(text(key))

    # All of the following is called with the bell's lock held.

    def _change(self, key, change):
        with self._bell:
            result = change(self._table, key)
            if self._table.has(key):
                self._waits.appeared(key)
                self._bell.notify_all()
            return result

    def _missing(self, keys):
        return [key for key in keys if not self._table.has(key)]

    def _values(self, keys, what):
        with self._bell:
            self._wait(keys, self.seconds(), what)
            return [self._table.get(key) or b"" for key in keys]

    def _wait(self, keys, seconds, what):
        missing = self._missing(keys)
        if not missing:
            return
        waits, waiter = self._waits, object()
        waits.open(waiter, missing)
        try:
            if not self._bell.wait_for(lambda: not waits.is_open(waiter), seconds):
                raise timed_out(what, seconds, self._missing(keys) or missing)
        finally:
            waits.close(waiter)
            waits.take_turn(waiter)
