"""What torch calls: `init_process_group("teachdist")` on CPU tensors, in readable Python.

The way of a call: `backend.py` receives it from torch, `binding.py` says which chunk is which part
of which tensor, `plan.py` has the algorithm's rounds, `executor.py` runs them over the links, and
`member.py` holds what belongs to one rank in one group.
"""

from teachdist.backend.backend import Backend
from teachdist.backend.failure import Released, guard_program, guarding, release_all
from teachdist.backend.lifecycle import members, register
from teachdist.backend.options import Options, use
from teachdist.backend.recovery import recover_all

register()


def release(failed):
    """Free all other ranks of this process's groups: their calls end with the reason.

    failed: the exception with which this rank's code ended, or a message.
    """
    release_all(members(), failed)


def recover(meeting=None, timeout=30.0):
    """After a failure: every group that has one meets anew. All ranks must call this.

    Process groups, models and meshes stay valid. If no rank has failed nothing changes. meeting:
    a name for this occasion, the same on all ranks and never used before; by default the ranks
    count their calls of `recover`. timeout: seconds to wait for the other ranks.

    A group that another rank has destroyed stays as it is, and the log says so.

    Returns whether a group has met anew. Raises DistBackendError if a rank does not come.
    """
    return recover_all(members(), meeting, timeout)


def guard():
    """Release the other ranks at once if the code inside fails: with teachdist.guard(): main()."""
    return guarding(members)


guard_program(members)

__all__ = [
    "Backend",
    "Options",
    "Released",
    "guard",
    "members",
    "recover",
    "register",
    "release",
    "use",
]
