"""Launches that follow each other on one store, and how they are kept apart.

A store remembers. Destroy a process group, make it again on the same store, and the second group
finds the addresses of the first under the very keys that it asks for; it connects to sockets that
are gone, or hangs. The same happens when two jobs are given one store.

The remedy is a ticket. Each rank draws one from its own counter: the first time rank 2 comes it
draws 1, then 2, and so on. If all ranks come equally often they draw the same number without
having to talk, and that number is the prefix under which this generation's keys live. The first
generation goes without a prefix, so ranks that use torch's stores still meet ours.

And each rank leaves its name with its ticket. So one that comes as number 2 knows who was number
1: it itself (it made its group again: fine), a process that has died (a restart: fine), or one
that is still running. The last is a second launch on the same store, and an error.
"""

import json
import logging

from torch.distributed import DistStoreError

from teachdist.stores.prefix import PrefixStore
from teachdist.stores.who import Process, is_alive, me

log = logging.getLogger(__name__)


def generation(store, rank):
    """Join ``store`` as ``rank`` of this launch; returns the store to be used for it.

    Every rank of a launch must call this, equally often.

    Raises:
        DistStoreError: another process that is still running joined as this rank before.
    """
    number = store.add(f"generation/{rank}", 1)
    store.set(f"generation/{rank}/{number}", json.dumps(me().as_dict()))
    if number == 1:
        return store
    before = Process.from_dict(json.loads(store.get(f"generation/{rank}/{number - 1}")))
    if not before.same(me()):
        alive = is_alive(before)
        if alive:
            raise DistStoreError(
                f"{me()}: two launches use one store: rank {rank} joined {store!r} before, as "
                f"{before}, and is still running. Give each launch its own port or path, or end "
                "the other one."
            )
        gone = "and is gone" if alive is False else "on another host; is it still running?"
        log.warning(
            "%s: rank %s joined this store before, as %s, %s. This is launch %d on it.",
            me(), rank, before, gone, number,
        )  # fmt: skip
    return PrefixStore(f"generation {number}", store)
