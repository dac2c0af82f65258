"""Joining: init_process_group returns when all ranks of the job have come.

torch leaves this to the backend or to the store, and a file waits for nobody: without this, rank 0
would go on, and a rank that never comes would be missed in the first collective, far from the
place where it should have been.

Everybody reads everybody's card, which the first collective needs anyway, and says so. Rank 0
stays until all have said so: the store may live in its process.

Only the job's first group waits. Groups made of it later have ranks that are known to be there.

Source: torch.distributed documentation, "Initialization".
"""

import contextlib

import torch.distributed as dist

from teachdist.backend import failure
from teachdist.backend.identity import unmake
from teachdist.diagnose import Watch
from teachdist.diagnose.watch import situation
from teachdist.links import LinkError, Patience, PeerLost, TimedOut
from teachdist.links.roster import until_ready

_WORDS = "init_process_group"


def join(backend):
    """Wait for all ranks of the backend's group, at most its timeout.

    Raises DistBackendError that names the ranks which did not come, on all ranks that did. The
    backend is shut down then, and what it left in the store is taken back: one may try again.
    """
    member = backend.member
    watch = Watch(member.view, _WORDS, member.options.hint_after)
    patience = Patience(member.timeout, watch, _WORDS)
    try:
        for rank in range(member.size):
            member.roster.card(rank, patience)
        if member.roster.gone(0):  # it would have stayed until this rank had read its card
            raise PeerLost("the process of rank 0 has ended", 0)
        _all_have_read(member, patience)
    except (LinkError, RuntimeError, KeyboardInterrupt) as error:
        explained = _explained(member, error)
        member.release(str(explained) or f"{member.who(member.rank)} was interrupted in {_WORDS}")
        unmake(member)
        backend.shutdown()
        raise explained from None


def _all_have_read(member, patience):
    shared = member.shared
    shared.set(f"read/{member.rank}", b"")
    if member.rank == 0:
        for rank in range(member.size):
            key = f"read/{rank}"
            until_ready(lambda key=key: shared.check([key]) or None, rank, patience)


def _explained(member, error):
    if isinstance(error, PeerLost) and error.rank == 0 and member.roster.gone(0):
        return dist.DistBackendError(
            f"{member.who(member.rank)} gave up in {_WORDS}: {error}. Unless it failed just now, "
            "what the store says of it is left over from an earlier run: start all ranks with a "
            "new file or address."
        )
    if not isinstance(error, TimedOut):
        return failure.explain(member, error, None, _WORDS)
    missing = [rank for rank in range(member.size) if _absent(member, rank)]
    return dist.DistBackendError(
        f"{member.who(member.rank)} gave up in {_WORDS}: {member.size - len(missing)} of "
        f"{member.size} ranks have joined within the timeout of {member.timeout:g} s. "
        f"{situation(member.view, missing or error.ranks, False)} Start all ranks with the same "
        "address or file, the same world_size and a rank of their own."
    )


def _absent(member, rank):
    with contextlib.suppress(LinkError):
        return member.roster.known(rank) is None
    return True
