"""FileStore: a store in a file that all processes can reach, a shared file system included.

No server and no port: a process that wants to say something appends a record, one that wants to
know reads what is new. The price is waiting: a file does not ring, so a wait looks again every 10
ms. (The system's notifications do not cross shared file systems, where this store is needed
most.)

A file outlives its processes, and that is its danger: the keys of a run that crashed answer the
next run, which then connects to the dead. torch's FileStore does not notice. Ours writes down
which process joins and which one leaves, and refuses, with the reason, to join a file

- whose processes have all died without leaving (a stale file), or
- that as many processes have joined as ``world_size`` says (a second launch on the same path).

The records are torch's (journal.py), so torch's FileStore and ours can share a file. They cannot
tell what ``add`` wrote from what ``set`` wrote: here, as in torch, ``add`` counts on from any
number.
"""

import contextlib
import os
import threading
import time

from torch.distributed import DistStoreError, QueueEmptyError

from teachdist.stores.base import Deadline, Store, blob, integer, texts, timed_out
from teachdist.stores.file_store.file_keys import (
    exists,
    plain_key,
    queue_items,
    queue_prefix,
    turn_of,
    turns_for,
    user_key,
)
from teachdist.stores.file_store.joined import Members, OtherRunError
from teachdist.stores.file_store.journal import Journal, JournalGoneError
from teachdist.stores.table import I64, shorten
from teachdist.stores.who import me

_inside = threading.local()  # .depth: how many files this thread has locked

_LOOK_AGAIN = 0.01
_CLOSE_WITHIN = 5.0


class FileStore(Store):
    """A key-value store in a file.

    Args:
        file_name: the file's path; it is made when it does not exist.
        world_size: number of processes that use it; negative when it is not fixed. When it is, the
            last one that closes its store deletes the file.

    Raises:
        DistStoreError: the file is one of another run, dead or alive.
    """

    def __init__(self, file_name, world_size=-1):
        users = integer(world_size, "FileStore", "world_size")
        if users == 0:
            raise ValueError(
                "FileStore: world_size=0; it is the number of users, or negative when it is not "
                "fixed"
            )
        self._prepare(os.fspath(file_name), users)
        with self._reading():
            pass  # joining is all that there is to do

    def _prepare(self, path, world_size):
        Store.__init__(self)
        self._path = path
        self._world_size = world_size
        self._thread_lock = threading.Lock()
        self._journal = self._members = None
        self._is_closed = False

    def _join(self):
        """Make the file, or find it as it may be joined."""
        while self._members is None:
            journal = Journal(self._path)
            with (
                contextlib.suppress(JournalGoneError),  # its last user deleted it as we came
                journal.locked(self.seconds(), exclusive=True, create=True),
            ):
                self._members = Members(journal, self._world_size)
                self._journal = journal

    path = property(lambda self: self._path, doc="The file's path.")

    def __repr__(self):
        return f"teachdist.stores.FileStore({self._path!r}, {self._world_size})"

    def clone(self):
        """Another store object on the same file."""
        other = FileStore.__new__(FileStore)
        other._prepare(self._path, self._world_size)  # joins when it is used
        other.set_timeout(self.timeout)
        return self.lend(other)

    @property
    def is_idle(self):
        """Whether it has not joined yet."""
        return self._members is None

    # Values

    def set(self, key, value):
        """Put a value (str or bytes) under a key, over an earlier one."""
        key, value = user_key(key), blob(value)
        with self._writing() as journal:
            journal.append(key, value)

    def get(self, key):
        """The key's value as bytes; waits for it up to the time-out.

        Raises:
            DistStoreError: nobody set it in time.
        """
        wanted, deadline = user_key(key), Deadline(self.seconds())
        look = lambda journal: journal.values.get(wanted)  # noqa: E731
        return self._poll(look, deadline, f"FileStore.get({key!r})", [key])

    def add(self, key, amount):
        """Count ``amount`` on to the counter ``key`` (made by the first call); the new value.

        Raises:
            DistStoreError: the key holds no number.
        """
        amount = integer(amount, "FileStore.add", "amount")
        with self._writing() as journal:
            value = journal.values.get(user_key(key), b"0")
            if not value.removeprefix(b"-").isdigit():
                raise DistStoreError(
                    f"{me()}: FileStore.add({key!r}, {amount}): the key holds {shorten(value)}, "
                    "which is no number. Use another key for the counter."
                )
            count = int(value) + amount
            if count not in I64:
                raise DistStoreError(f"FileStore.add({key!r}): {count} does not fit 64 bits")
            journal.append(user_key(key), b"%d" % count)
            return count

    def append(self, key, value):
        """Put ``value`` at the end of the key's value; makes the key when it is absent."""
        key, value = user_key(key), blob(value)
        with self._writing() as journal:
            journal.append(key, journal.values.get(key, b"") + value)

    def compare_set(self, key, expected_value, desired_value):
        """Replace ``expected_value`` ("" for an absent key); returns the value the key has then."""
        key, expected, desired = user_key(key), blob(expected_value), blob(desired_value)
        with self._writing() as journal:
            now = journal.values.get(key)
            if now == expected or (now is None and not expected):
                journal.append(key, desired)
                return desired
            return expected if now is None else now

    # Keys

    def check(self, keys):
        """Whether all keys exist (a queue that is not empty counts)."""
        keys = texts(keys, "check")
        with self._reading() as journal:
            return all(exists(journal, key) for key in keys)

    def wait_for(self, keys, seconds, what):
        """Wait for all keys; ``what`` names the call in the error."""
        with self._reading() as journal:
            waited_for = [key for key in keys if not exists(journal, key)]
        deadline = Deadline(seconds)
        while waited_for:
            self._poll(lambda journal: turns_for(journal, keys, waited_for), deadline, what, keys)
            with self._writing() as journal:
                turns = turns_for(journal, keys, waited_for)
                if turns is not None:
                    for turn in turns:
                        journal.append(turn, b"")
                    return

    def delete_key(self, key):
        """Not there for a FileStore, says the documentation; torch's appends a deletion.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError(
            f"FileStore.delete_key({key!r}): a FileStore does not delete keys; TCPStore and "
            "HashStore do. Set the key to an empty value, or use another key."
        )

    def num_keys(self):
        """Number of keys written to the file, those of bookkeeping included."""
        with self._reading() as journal:
            return sum(not key.startswith((b"queue/", b"turn/")) for key in journal.values)

    def list_keys(self):
        """All keys, in the order in which they were first set."""
        with self._reading() as journal:
            return [plain_key(key) for key in journal.values if key.startswith(b"/")]

    # Queues. An item is a key of its own, named by queue and place in the file; popping deletes it.

    def queue_push(self, key, value):
        """Put a value at the end of a queue."""
        value = blob(value)
        with self._writing() as journal:
            journal.append(b"%s%020d" % (queue_prefix(key), journal.size), value)

    def queue_pop(self, key, block=True):
        """Take the oldest value of a queue; with ``block``, wait for one up to the time-out.

        Raises:
            QueueEmptyError: there is none and ``block`` is False.
            DistStoreError: there was none in time.
        """
        what, deadline = f"FileStore.queue_pop({key!r})", Deadline(self.seconds())
        while True:
            if block:
                self._poll(lambda journal: queue_items(journal, key) or None, deadline, what, [key])
            with self._writing() as journal:
                if items := queue_items(journal, key):
                    value = journal.values[items[0]]
                    journal.append(b"-" + items[0], b"")
                    journal.append(b"-" + turn_of(items[0]), b"")
                    return value
            if not block:
                raise QueueEmptyError(f"{what}: the queue is empty, and block=False")

    def queue_len(self, key):
        """Number of values in the queue; 0 when there is no such queue."""
        with self._reading() as journal:
            return len(queue_items(journal, key))

    # The file

    def _reading(self):
        return self._use(self.seconds(), exclusive=False)

    def _writing(self):
        return self._use(self.seconds(), exclusive=True)

    @contextlib.contextmanager
    def _use(self, seconds, *, exclusive):
        """The journal, locked and up to date."""
        if self._is_closed:
            raise DistStoreError(f"{self!r} is closed")
        _inside.depth = getattr(_inside, "depth", 0) + 1
        try:
            with self._thread_lock:
                if self._members is None:
                    self._join()
                with self._journal.locked(seconds, exclusive=exclusive) as journal:
                    yield journal
        except JournalGoneError as error:
            raise DistStoreError(
                f"{me()}: {self!r}: the file is not the one this store was opened on: {error}. "
                "Did another run, or the last one of this run, clean up? Use one path per launch."
            ) from error
        except OtherRunError as error:
            raise DistStoreError(f"{me()}: {self!r}: {error}") from error
        except TimeoutError as error:
            raise DistStoreError(f"{me()}: {self!r}: {error}; is its holder stopped?") from error
        finally:
            _inside.depth -= 1

    def _poll(self, look, deadline, what, keys):
        """Look into the file again and again until ``look`` finds something, and return that."""
        while True:
            with self._reading() as journal:
                found = look(journal)
                if found is None and not deadline.left():
                    missing = [key for key in keys if not exists(journal, key)]
                    raise timed_out(f"{what} in {self._path}", deadline.seconds, missing or keys)
            if found is not None:
                return found
            time.sleep(min(_LOOK_AGAIN, deadline.left()))

    def close(self):
        """Leave; the last one of a fixed ``world_size`` deletes the file."""
        members = self.__dict__.get("_members")  # which is not there when __init__ failed early
        if self.__dict__.get("_is_closed", True) or not members or not members.are_ours:
            return
        if getattr(_inside, "depth", 0):
            # We are collected while this thread has a file locked, perhaps the same one.
            threading.Thread(target=self.close, name="teachdist-close").start()
            return
        with (
            contextlib.suppress(DistStoreError, OSError),
            self._use(_CLOSE_WITHIN, exclusive=True) as journal,
        ):
            if members.leave(journal):
                journal.remove()
        self._is_closed = True
