"""What torch calls: `init_process_group("teachdist")` on CPU tensors, in readable Python.

The way of a call: `backend.py` receives it from torch, `calls/binding.py` says which chunk is which
part of which tensor, `execution/plan.py` has the algorithm's rounds, `execution/executor.py` runs
them over the links, and `group/communicator.py` holds what belongs to one rank in one group.
"""

from teachdist.backend.backend import Backend
from teachdist.backend.execution.options import Options, use
from teachdist.backend.group.abort import Released, guard_program, guarding, release_all
from teachdist.backend.group.recovery import recover_all
from teachdist.backend.lifecycle import communicators, register

register()


def release(failed):
    """Free all other ranks of this process's groups: their calls end with the reason.

    failed: the exception with which this rank's code ended, or a message.
    """
    release_all(communicators(), failed)


def recover(meeting=None, timeout=30.0):
    """After a failure: every group that has one meets anew. All ranks must call this.

    Process groups, models and meshes stay valid. If no rank has failed nothing changes. meeting:
    a name for this occasion, the same on all ranks and never used before; by default the ranks
    count their calls of `recover`. timeout: seconds to wait for the other ranks.

    A group that another rank has destroyed stays as it is, and the log says so.

    Returns whether a group has met anew. Raises DistBackendError if a rank does not come.
    """
    return recover_all(communicators(), meeting, timeout)


def guard():
    """Release the other ranks at once if the code inside fails: with teachdist.guard(): main()."""
    return guarding(communicators)


guard_program(communicators)

__all__ = [
    "Backend",
    "Options",
    "Released",
    "communicators",
    "guard",
    "recover",
    "register",
    "release",
    "use",
]
