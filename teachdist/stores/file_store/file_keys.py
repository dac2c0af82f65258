"""How keys, queues and turns of a FileStore stand in its journal: as records under prefixes.

    /n                   a user's key "n"
    queue//q/00...042    a value of queue "q"; the number, a place in the file, gives the order
    turn/queue//q/...    that value has woken one waiter, and no other may be woken by it

Popping a value deletes its record. All that is here looks at a journal and writes nothing.
"""

from teachdist.stores.base import text


def user_key(key):
    """A user's key as it stands in the file."""
    return b"/" + text(key, "FileStore").encode(errors="surrogateescape")


def plain_key(key):
    """A key of the file as its user wrote it."""
    return key[1:].decode(errors="surrogateescape")


def queue_prefix(key):
    """What the keys of a queue's values begin with."""
    return b"queue/" + user_key(key) + b"/"


def queue_items(journal, key):
    """The queue's items, oldest first."""
    prefix = queue_prefix(key)
    return sorted(item for item in journal.values if item.startswith(prefix))


def exists(journal, key):
    """Whether the key has a value, or names a queue that is not empty."""
    return user_key(key) in journal.values or bool(queue_items(journal, key))


def turn_of(item):
    """The record that says: this item of a queue has woken somebody."""
    return b"turn/" + item


def turns_for(journal, keys, waited_for):
    """What to write when the wait for ``keys`` may end, a turn per queue; None when it may not.

    One item wakes one waiter. Who found the queue filled when it came needs no turn.
    """
    turns = []
    for key in keys:
        if not exists(journal, key):
            return None
        if key in waited_for and user_key(key) not in journal.values:
            free = [i for i in queue_items(journal, key) if turn_of(i) not in journal.values]
            if not free:
                return None
            turns.append(turn_of(free[0]))
    return turns
