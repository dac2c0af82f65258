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

from teachdist.backend.group import abort
from teachdist.backend.group.identity import unmake
from teachdist.diagnose import Watchdog
from teachdist.diagnose.watchdog import situation
from teachdist.links import Deadline, LinkError, PeerLost, TimedOut
from teachdist.links.rendezvous.peers import until_ready

_WORDS = "init_process_group"


def join(backend):
    """Wait for all ranks of the backend's group, at most its timeout.

    Raises DistBackendError that names the ranks which did not come, on all ranks that did. The
    backend is shut down then, and what it left in the store is taken back: one may try again.
    """
    communicator = backend.communicator
    watch = Watchdog(communicator.view, _WORDS, communicator.options.hint_after)
    deadline = Deadline(communicator.timeout, watch, _WORDS)
    try:
        for rank in range(communicator.size):
            communicator.peers.card(rank, deadline)
        if communicator.peers.gone(0):  # it would have stayed until this rank had read its card
            raise PeerLost("the process of rank 0 has ended", 0)
        _all_have_read(communicator, deadline)
    except (LinkError, RuntimeError, KeyboardInterrupt) as error:
        explained = _explained(communicator, error)
        communicator.release(
            str(explained) or f"{communicator.who(communicator.rank)} was interrupted in {_WORDS}"
        )
        unmake(communicator)
        backend.shutdown()
        raise explained from None


def _all_have_read(communicator, deadline):
    shared = communicator.shared
    shared.set(f"read/{communicator.rank}", b"")
    if communicator.rank == 0:
        for rank in range(communicator.size):
            key = f"read/{rank}"
            until_ready(lambda key=key: shared.check([key]) or None, rank, deadline)


def _explained(communicator, error):
    if isinstance(error, PeerLost) and error.rank == 0 and communicator.peers.gone(0):
        return dist.DistBackendError(
            f"{communicator.who(communicator.rank)} gave up in {_WORDS}: {error}. "
            "Unless it failed just now, "
            "what the store says of it is left over from an earlier run: start all ranks with a "
            "new file or address."
        )
    if not isinstance(error, TimedOut):
        return abort.explain(communicator, error, None, _WORDS)
    missing = [rank for rank in range(communicator.size) if _absent(communicator, rank)]
    return dist.DistBackendError(
        f"{communicator.who(communicator.rank)} gave up in {_WORDS}: "
        f"{communicator.size - len(missing)} of {communicator.size} ranks have joined within the "
        f"timeout of {communicator.timeout:g} s. "
        f"{situation(communicator.view, missing or error.ranks, False)} Start all ranks with the "
        "same address or file, the same world_size and a rank of their own."
    )


def _absent(communicator, rank):
    with contextlib.suppress(LinkError):
        return communicator.peers.known(rank) is None
    return True
