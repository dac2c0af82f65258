"""What a key-value store does with keys and values, apart from who asks and who waits.

HashStore and the TCPStore server both keep their data here, so the rules of counters, of
compare-and-set and of queues stand in one place. A table never waits and is not thread-safe: its
owner holds a lock, or is the only thread.

Three things under three kinds of name: values (bytes), counters (decimal text, as torch stores
them, so that ``get`` of a counter is readable) and queues, which have names of their own.
"""

from collections import deque

I64 = range(-(1 << 63), 1 << 63)


class NotACounterError(Exception):
    """``add`` on a key whose value did not come from ``add``, or beyond 64 bits."""


class Table:
    """Keys to values, and queues. Keys may be str or bytes; values are bytes."""

    def __init__(self):
        self.values = {}
        self.queues = {}
        self._counters = set()

    def set(self, key, value):
        """Put a value under a key; a counter of that name is none any more."""
        self.values[key] = value
        self._counters.discard(key)

    def get(self, key):
        """The value, or None."""
        return self.values.get(key)

    def has(self, key):
        """Whether the key has a value, or names a queue that is not empty."""
        return key in self.values or key in self.queues

    def compare_set(self, key, expected, desired):
        """Put ``desired`` in place of ``expected``; b"" expects that there is no value.

        Returns the value that the key has now. A missing key for which a value was expected stays
        missing, and the answer is ``expected``, as in torch.
        """
        now = self.values.get(key)
        if now == expected or (now is None and not expected):
            self.set(key, desired)
            return desired
        return expected if now is None else now

    def add(self, key, amount):
        """Count on and return the new value; the first call makes the counter.

        A value that ``set`` put there is no counter, be it a number or not: so the documentation
        has it. (torch's stores count on from any text that begins with a number.)
        """
        if key in self.values and key not in self._counters:
            raise NotACounterError(f"it holds {shorten(self.values[key])}, put there by set()")
        count = int(self.values.get(key, b"0")) + amount
        if count not in I64:
            raise NotACounterError(f"{count} does not fit 64 bits")
        self.values[key] = b"%d" % count
        self._counters.add(key)
        return count

    def append(self, key, value):
        """Put ``value`` at the end of the key's value."""
        self.set(key, self.values.get(key, b"") + value)

    def delete(self, key):
        """Whether there was such a key. A queue of that name is left alone."""
        self._counters.discard(key)
        return self.values.pop(key, None) is not None

    def push(self, key, value):
        """Put a value at the end of a queue."""
        self.queues.setdefault(key, deque()).append(value)

    def pop(self, key):
        """The oldest value of the queue, or None when it is empty."""
        queue = self.queues.get(key)
        if queue is None:
            return None
        value = queue.popleft()
        if not queue:
            del self.queues[key]
        return value

    def length(self, key):
        """Number of values in the queue."""
        return len(self.queues.get(key, ()))


def shorten(value, most=40):
    """A value for people: its repr, or its beginning and its size."""
    return repr(value) if len(value) <= most else f"{value[:most]!r}... ({len(value)} bytes)"
