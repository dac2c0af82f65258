"""Which processes have joined a FileStore's file, and whether they still live.

torch counts how many stores were opened and closed. A count does not tell a crashed run from a
slow one, so each of our stores also notes which process it is in, and notes it again when it
leaves. With that a newcomer can see in what state it finds the file:

- some have left, some are there, and with us they are ``world_size`` at most: the run is ours;
- nobody who is there lives: their run has crashed, and its keys would be taken for ours;
- as many processes as ``world_size`` have been here before us: we are of another launch.

About processes on other hosts nothing can be known; they count as alive.
"""

import json
import logging
import uuid

from teachdist.stores.who import Process, is_alive, me

log = logging.getLogger(__name__)

# torch's counters; ours go on with them, so that the last one out is known among both
_OPEN, _CLOSED = b"refcount/", b"cleanup/"


class OtherRunError(Exception):
    """The file belongs to another run."""


class Members:
    """Our membership in a file. To be made and ended with the journal locked exclusively.

    Raises:
        OtherRunError: the file is that of another run, and ``world_size`` is fixed.
    """

    def __init__(self, journal, world_size):
        self._me = me()
        self._id = uuid.uuid4().hex.encode()
        self._world_size = world_size
        self._refuse_other_runs(journal)
        journal.note(b"joined/" + self._id, json.dumps(self._me.as_dict()).encode())
        _count(journal, _OPEN, 1)

    @property
    def are_ours(self):
        """False in a forked child, which must not leave in its parent's name."""
        return self._me.same(me())

    def leave(self, journal):
        """Note that we leave. True when all have, so that the file is to be deleted.

        Who died without leaving has left, too.
        """
        journal.note(b"left/" + self._id, b"")
        closed, is_open = _count(journal, _CLOSED, 1), _count(journal, _OPEN, -1)
        dead = sum(is_alive(process) is False for process in _present(journal))
        return self._world_size >= 0 and is_open - dead <= 0 and closed + dead >= self._world_size

    def _refuse_other_runs(self, journal):
        present = _present(journal)
        dead = [process for process in present if is_alive(process) is False]
        if dead and len(dead) == len(present):
            self._refuse(
                f"the file was left behind by a run that died: {_names(dead)} joined it and are "
                "gone. Its keys would be taken for this run's. Delete the file, or use a new path"
            )
        earlier = _distinct(_joined(journal).values())
        if len(earlier) >= self._world_size > 0 and not any(p.same(self._me) for p in earlier):
            now = f"still there: {_names(_distinct(present))}" if present else "all have left"
            self._refuse(
                f"this would be process {len(earlier) + 1} of world_size={self._world_size}. "
                f"Before it came {_names(earlier)} ({now}). Two launches on one file mix their "
                "keys: give each its own path, and delete the file of one that is over"
            )
        unknown = int(journal.values.get(_OPEN, b"0")) - len(present)
        if not present and unknown >= self._world_size > 0:
            log.warning(
                "%s: FileStore %s was opened %d times by torch's FileStore and not closed: is it "
                "of an earlier run, or of another launch?", self._me, journal.path, unknown
            )  # fmt: skip

    def _refuse(self, why):
        if self._world_size > 0:
            raise OtherRunError(f"{why}.")
        log.warning("%s: FileStore: %s.", self._me, why)


def _count(journal, key, amount):
    count = int(journal.values.get(key, b"0")) + amount
    journal.append(key, b"%d" % count)
    return count


def _joined(journal):
    """The processes that have joined, by the id of their store."""
    return {
        key.removeprefix(b"joined/"): Process.from_dict(json.loads(value))
        for key, value in journal.notes.items()
        if key.startswith(b"joined/")
    }


def _present(journal):
    """The processes that joined and did not leave, one for each of their stores."""
    return [p for i, p in _joined(journal).items() if b"left/" + i not in journal.notes]


def _distinct(processes):
    distinct = []
    for process in processes:
        if not any(process.same(other) for other in distinct):
            distinct.append(process)
    return distinct


def _names(processes):
    names = [str(process) for process in _distinct(processes)]
    return "; ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
