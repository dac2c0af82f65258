"""Joining: init_process_group returns when all ranks of the job have come.

torch leaves this to the backend or to the store, and a file waits for nobody: without this, rank 0
would go on, and a rank that never comes would be missed in the first collective, far from the
place where it should have been.

Everybody reads everybody's card, which the first collective needs anyway, and says so. Rank 0
stays until all have said so: the store may live in its process.

Only the job's first group waits at its beginning. Groups made of it later have ranks that are known
to be there, but a rank may still be on its way to one: so whoever may serve the store, rank 0 of
the job, does not leave such a group before all its ranks have come to it (`stay`). A program whose
last act is new_group would otherwise fail on the others, which find no store.

Source: torch.distributed documentation, "Initialization".
"""

import contextlib
import os

import torch.distributed as dist

from teachdist.backend.group import abort, launch
from teachdist.backend.group.identity import unmake
from teachdist.diagnose import Watchdog
from teachdist.diagnose.log import log
from teachdist.diagnose.watchdog import situation
from teachdist.links import Deadline, LinkError, PeerLost, TimedOut
from teachdist.links.rendezvous.peers import until_ready

_WORDS = "init_process_group"
STAY = 10.0  # seconds that rank 0 waits for ranks on their way to a group that it leaves


def join(backend):
    """Wait for all ranks of the backend's group, at most its timeout.

    Raises DistBackendError that names the ranks which did not come, on all ranks that did. The
    backend is shut down then, and what it left in the store is taken back: one may try again.
    """
    communicator = backend.communicator
    watch = Watchdog(communicator.view, _WORDS, communicator.options.hint_after)
    deadline = Deadline(communicator.timeout, watch, _WORDS)
    try:
        launch.refuse_second(communicator)
        for rank in range(communicator.size):
            launch.compare(communicator, communicator.peers.card(rank, deadline))
        if communicator.peers.gone(0):  # it would have stayed until this rank had read its card
            raise PeerLost("the process of rank 0 has ended", 0)
        _all_have_read(communicator, deadline)
    except (LinkError, RuntimeError, KeyboardInterrupt) as error:
        explained = _explained(communicator, error)
        communicator.release(
            str(explained) or f"{communicator.who(communicator.rank)} was interrupted in {_WORDS}"
        )
        # A rank of another launch must still find out whose store it is.
        unmake(communicator, tracks=not isinstance(error, launch.OtherLaunch))
        backend.shutdown()
        raise explained from None


def stay(communicator):
    """Before leaving: wait until no rank of the group needs the store any more to come to it.

    Only where this process may serve the store, and at most `STAY` seconds. A rank that has left
    the job without coming is not waited for.
    """
    serves = communicator.global_ranks[communicator.rank] == 0
    if not serves or communicator.left or communicator.broken is not None or _an_agent_serves():
        return
    deadline = Deadline(min(STAY, communicator.timeout), None, "destroy_process_group")
    try:
        for rank in range(communicator.size):
            until_ready(lambda rank=rank: _came_or_left(communicator, rank), rank, deadline)
    except (LinkError, RuntimeError) as error:
        words = '%s leaves group "%s", to which not all of its ranks have come: %s'
        log.info(words, communicator.who(communicator.rank), communicator.title, error)


def _came_or_left(communicator, rank):
    """True if a rank needs the store no more to come to the group; None as long as it may."""
    if communicator.peers.fetch(rank) is not None:
        return True
    world = communicator.world
    if world is None or world.left:
        return None
    there = world.global_ranks.index(communicator.global_ranks[rank])
    return world.peers.gone(there) or world.peers.left(there) or None


def _an_agent_serves():
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


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
    if isinstance(error, launch.OtherLaunch):
        me = communicator.who(communicator.rank)
        return dist.DistBackendError(f"{me} gave up in {_WORDS}: {error}")
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
