"""Calls that a native backend executes, watched over as if this package executed them."""

import contextlib

from teachdist.backend.group.abort import fail
from teachdist.backend.native.native_watchdog import Overseen, overseer
from teachdist.diagnose import Watchdog
from teachdist.diagnose.log import log
from teachdist.links.board.writer import IDLE, IN_CALL


@contextlib.contextmanager
def overseen(communicator, number, fingerprint, words):
    """While a native backend executes call `number`: the board shows it, and it is watched over.

    When waiting becomes pointless the group's generation ends, as if this rank had waited itself:
    the sentence goes to the log, `communicator.broken` holds it, and an error that the native
    backend raises is replaced by it.
    """
    found = []

    def trouble(error):
        found.append(fail(communicator, error, number, words))
        log.error("%s", found[0])

    communicator.page.write(IN_CALL, communicator.generation, number, words, fingerprint)
    watch = Watchdog(
        communicator.view, words, communicator.options.hint_after, (number, fingerprint)
    )
    token = overseer.add(Overseen(watch, lambda: _late(communicator, number), trouble))
    try:
        yield
    except RuntimeError as error:
        if found:
            raise found[0] from error
        raise
    finally:
        overseer.remove(token)
        communicator.page.write(IDLE, communicator.generation, number, words, fingerprint)


def _late(communicator, number):
    """The ranks of the group that have not come to call `number`, as far as can be seen."""
    late = []
    for rank in range(communicator.size):
        position = communicator.peers.position(rank)
        if position is not None and not _came(communicator, position, number):
            late.append(rank)
    return late or [rank for rank in range(communicator.size) if rank != communicator.rank]


def _came(communicator, position, number):
    entries = position.calls.values()
    return any(e.number >= number and e.generation == communicator.generation for e in entries)
