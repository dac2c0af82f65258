"""Calls that a native backend executes, watched over as if this package executed them."""

import contextlib

from teachdist.backend.failure import fail
from teachdist.diagnose import Watch
from teachdist.diagnose.log import log
from teachdist.diagnose.oversee import Overseen, overseer
from teachdist.links.board import IDLE, IN_CALL


@contextlib.contextmanager
def overseen(member, number, fingerprint, words):
    """While a native backend executes call `number`: the board shows it, and it is watched over.

    When waiting becomes pointless the group's generation ends, as if this rank had waited itself:
    the sentence goes to the log, `member.broken` holds it, and an error that the native backend
    raises is replaced by it.
    """
    found = []

    def trouble(error):
        found.append(fail(member, error, number, words))
        log.error("%s", found[0])

    member.page.write(IN_CALL, member.generation, number, words, fingerprint)
    watch = Watch(member.view, words, member.options.hint_after, (number, fingerprint))
    token = overseer.add(Overseen(watch, lambda: _late(member, number), trouble))
    try:
        yield
    except RuntimeError as error:
        if found:
            raise found[0] from error
        raise
    finally:
        overseer.remove(token)
        member.page.write(IDLE, member.generation, number, words, fingerprint)


def _late(member, number):
    """The ranks of the group that have not come to call `number`, as far as can be seen."""
    late = []
    for rank in range(member.size):
        position = member.roster.position(rank)
        if position is not None and not _came(member, position, number):
            late.append(rank)
    return late or [rank for rank in range(member.size) if rank != member.rank]


def _came(member, position, number):
    entries = position.calls.values()
    return any(e.number >= number and e.generation == member.generation for e in entries)
