"""What torch calls: `init_process_group("teachdist")` on CPU tensors, in readable Python.

The way of a call: `backend.py` receives it from torch, `call.py` says which chunk is which part
of which tensor, `plan.py` has the algorithm's rounds, `executor.py` runs them over the links, and
`member.py` holds what belongs to one rank in one group.
"""

from teachdist.backend.backend import Backend
from teachdist.backend.lifecycle import members, register
from teachdist.backend.options import Options, use

register()


def release(message):
    """Free all other ranks of this process's groups: their calls end with `message`."""
    for member in members():
        member.release(message)


def recover():
    """After a failure: every group that has one meets anew. All ranks must call this."""
    for member in members():
        member.recover()


__all__ = ["Backend", "Options", "members", "recover", "register", "release", "use"]
