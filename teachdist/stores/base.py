"""What all four stores share: torch's names and argument rules, and how long a store lives.

**The interface.** ``torch.distributed.Store`` can be subclassed in Python; torch's C++ code then
calls our methods. Two of them it looks for under their C++ names (``getNumKeys``, ``deleteKey``),
the queue methods and ``list_keys`` it never calls. The time-out is kept by the base class, so
that C++ and Python see the same one.

**The lifetime.** C++ holds a store without holding its Python object: once that is collected, C++
finds no methods and fails with an internal assertion. ``init_process_group(store=TCPStore(...))``
gets into that, as it keeps nothing else of it. So a store that is about to be collected looks
whether a process group still stands on it, and then lives until that group's own store is gone.
Otherwise it closes itself, as torch's do when they are destroyed.
"""

import operator
import time
import weakref
from datetime import timedelta

import torch.distributed as dist
from torch.distributed import distributed_c10d

from teachdist.stores.who import me

FOREVER = 2.0**21  # seconds, 24 days: what a time-out of zero ("none") means, as nothing may hang


class Store(dist.Store):
    """Base of the stores of this package; see :class:`torch.distributed.Store` for the methods.

    A subclass provides ``set get add append compare_set check wait_for delete_key num_keys
    list_keys queue_push queue_pop queue_len clone``; here is what can be said in terms of these.
    """

    def has_extended_api(self):
        """True: append, multi_get and multi_set are there."""
        return True

    def wait(self, keys, timeout=None):
        """Wait until all keys exist, for ``timeout`` (timedelta) or else the store's own.

        Raises:
            DistStoreError: a key is missing when the time is up.
        """
        self.wait_for(texts(keys, "wait"), self.seconds(timeout), f"{self.name}.wait")

    def multi_get(self, keys):
        """The values of all keys, in order; waits for missing ones like :meth:`get`."""
        return [self.get(key) for key in texts(keys, "multi_get")]

    def multi_set(self, keys, values):
        """Set each key to the value at the same place of the second list."""
        for key, value in self.pairs(keys, values):
            self.set(key, value)

    def barrier(self, key, world_size, timeout=None):
        """Wait until ``world_size`` callers have come to the barrier ``key``."""
        last = f"{text(key)}/last_member"
        if self.add(f"{key}/num_members", 1) >= integer(world_size, "barrier", "world_size"):
            self.set(last, "<val_ignored>")
        self.wait([last], self.timeout if timeout is None else timeout)

    # C++'s names for two of them

    def getNumKeys(self):  # noqa: N802, D102
        return self.num_keys()

    def deleteKey(self, key):  # noqa: N802, D102
        return self.delete_key(key)

    # For subclasses

    @property
    def name(self):
        """How messages call this store."""
        return type(self).__name__

    def set_timeout(self, timeout):
        """How long get(), wait() and the like may take: a timedelta."""
        if not isinstance(timeout, timedelta):
            raise TypeError(f"{self.name}: timeout must be a timedelta, not {timeout!r}")
        super().set_timeout(timeout)

    def seconds(self, timeout=None):
        """A time-out as seconds: the one given, or the store's; zero means none (24 days)."""
        if timeout is None:
            timeout = self.timeout
        if not isinstance(timeout, timedelta):
            raise TypeError(f"{self.name}: timeout must be a timedelta, not {timeout!r}")
        return min(timeout.total_seconds() or FOREVER, FOREVER)

    def pairs(self, keys, values):
        """Checked keys and values of a multi_set."""
        keys = texts(keys, "multi_set")
        if len(keys) != len(values):
            raise dist.DistStoreError(
                f"{self.name}.multi_set: {len(keys)} keys but {len(values)} values"
            )
        return list(zip(keys, map(blob, values), strict=True))

    # Lifetime

    is_idle = False  # for a clone: whether it has not been used yet
    _cloned_from = None

    def lend(self, clone):
        """Mark a new, unused store as a clone of this one, and return it."""
        clone._cloned_from = weakref.ref(self)
        return clone

    def close(self):
        """Give back what the store holds; may be called twice. Also done when it is collected."""

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.close()

    def __del__(self):
        original = self._cloned_from and self._cloned_from()
        if original is not None and self.is_idle:
            original.__dict__.setdefault("_lent", []).append(self)
        elif holder := _held_by_a_group(self):
            weakref.finalize(holder, self.close)
        else:
            self.close()


def _held_by_a_group(store):
    """The PrefixStore of a process group that stands on this store, or None."""
    world = getattr(distributed_c10d, "_world", None)
    for _, top in list(world.pg_map.values()) if world else ():
        below = top
        while isinstance(below, dist.PrefixStore):
            below = below.underlying_store
            if below is store:
                return top
    return None


class Deadline:
    """Time that is running out."""

    def __init__(self, seconds):
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    def left(self):
        """Seconds left, not below zero."""
        return max(0.0, self._end - time.monotonic())


def text(key, method="store"):
    """A key as text: str, or bytes that spell one."""
    if type(key) is str:
        return key
    if isinstance(key, bytes):
        return key.decode(errors="surrogateescape")
    if isinstance(key, str):
        return str(key)
    raise TypeError(f"{method}: a key must be a str, not {key!r}")


def texts(keys, method):
    """A list of keys; a single str is refused, as it would be taken for a list of letters."""
    if isinstance(keys, (str, bytes)):
        raise TypeError(f"{method}: keys must be a list of str, not the single key {keys!r}")
    return [text(key, method) for key in keys]


def blob(value):
    """A value as bytes: bytes, or a str in UTF-8."""
    if isinstance(value, str):
        return value.encode(errors="surrogateescape")
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise TypeError(f"a store's value must be str or bytes, not {value!r}")


def integer(value, method, argument):
    """A whole number that fits 64 bits."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{method}: {argument} must be a whole number, not {value!r}") from None
    if not -(1 << 63) <= number < 1 << 63:
        raise TypeError(f"{method}: {argument}={number} does not fit 64 bits")
    return number


def timed_out(what, seconds, missing):
    """The error of a wait in vain."""
    keys = ", ".join(repr(key) for key in missing[:20])
    return dist.DistStoreError(
        f"{me()}: {what} timed out after {seconds:.1f} s. Nobody has set {keys}. "
        "Look at the rank (or thread) that should have set it: did it fail, or never get there?"
    )
