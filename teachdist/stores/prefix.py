"""PrefixStore: the same store, with a prefix before each key.

It keeps users of one store out of each other's way: two groups can both say "rank 0's address",
because one says "a/address" and the other "b/address". torch puts a PrefixStore per group, and per
device in it, over the store of the job; their names are what one sees on the wire.
"""

import torch.distributed as dist

from teachdist.stores.base import Store, blob, text, texts


class PrefixStore(Store):
    """A store that puts ``prefix`` and "/" before each key of the store underneath.

    Args:
        prefix: may be empty; nested prefixes add up, the outermost nearest to the key.
        store: any store, of torch or of this package, or one written in Python.

    Raises:
        ValueError: ``store`` is none.
    """

    def __init__(self, prefix, store):
        super().__init__()
        self._prefix = text(prefix, "PrefixStore")
        if not isinstance(store, dist.Store):
            raise ValueError(f"PrefixStore: store must be a Store, got {store!r}")
        self._store = store
        self._timeout = store.timeout
        super().set_timeout(self._timeout)

    underlying_store = property(lambda self: self._store, doc="The store that was wrapped.")

    @property
    def _underlying_non_prefix_store(self):
        """The store below all prefixes, as torch calls it."""
        store = self._store
        while isinstance(store, dist.PrefixStore | PrefixStore):
            store = store.underlying_store
        return store

    @property
    def timeout(self):
        """The time-out of the store underneath."""
        return self._below.timeout

    def set_timeout(self, timeout):
        """Set the time-out of the store underneath, as torch's does."""
        self._store.set_timeout(timeout)
        self._timeout = timeout
        super().set_timeout(timeout)

    @property
    def _below(self):
        """The store underneath. C++ sets a time-out without telling Python: pass it on here."""
        if super().timeout != self._timeout:
            self.set_timeout(super().timeout)
        return self._store

    @property
    def is_idle(self):
        """Whether the store underneath has not been used."""
        return getattr(self._store, "is_idle", False)

    def __repr__(self):
        return f"teachdist.stores.PrefixStore({self._prefix!r}, {self._store!r})"

    def _full(self, key):
        return f"{self._prefix}/{text(key, 'PrefixStore')}"

    def _all_full(self, keys, method):
        return [self._full(key) for key in texts(keys, method)]

    def clone(self):
        """This prefix over a clone of the store underneath."""
        return self.lend(PrefixStore(self._prefix, self._below.clone()))

    def has_extended_api(self):
        """Whether the store underneath has append, multi_get and multi_set."""
        return self._below.has_extended_api()

    # Each method is that of the store underneath, with full keys.

    def set(self, key, value):  # noqa: D102
        self._below.set(self._full(key), blob(value))

    def get(self, key):  # noqa: D102
        return self._below.get(self._full(key))

    def add(self, key, amount):  # noqa: D102
        return self._below.add(self._full(key), amount)

    def append(self, key, value):  # noqa: D102
        self._below.append(self._full(key), blob(value))

    def compare_set(self, key, expected_value, desired_value):  # noqa: D102
        values = blob(expected_value), blob(desired_value)
        return self._below.compare_set(self._full(key), *values)

    def multi_get(self, keys):  # noqa: D102
        return self._below.multi_get(self._all_full(keys, "multi_get"))

    def multi_set(self, keys, values):  # noqa: D102
        pairs = self.pairs(keys, values)
        self._below.multi_set([self._full(key) for key, _ in pairs], [value for _, value in pairs])

    def check(self, keys):  # noqa: D102
        return self._below.check(self._all_full(keys, "check"))

    def wait(self, keys, timeout=None):  # noqa: D102
        keys = self._all_full(keys, "wait")
        if timeout is None:
            self._below.wait(keys)
        else:
            self._below.wait(keys, timeout)

    def delete_key(self, key):  # noqa: D102
        return self._below.delete_key(self._full(key))

    def num_keys(self):
        """Number of keys of the store underneath, those without this prefix included."""
        return self._below.num_keys()

    def list_keys(self):
        """The keys under this prefix, without it."""
        prefix = f"{self._prefix}/"
        keys = self._below.list_keys()
        return [key.removeprefix(prefix) for key in keys if key.startswith(prefix)]

    def queue_push(self, key, value):  # noqa: D102
        self._below.queue_push(self._full(key), blob(value))

    def queue_pop(self, key, block=True):  # noqa: D102
        return self._below.queue_pop(self._full(key), block)

    def queue_len(self, key):  # noqa: D102
        return self._below.queue_len(self._full(key))
