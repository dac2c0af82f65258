"""Virtual ranks: an unchanged program on a thousand ranks of one process.

scheduler.py   threads of which one runs at a time; who runs next, alarms, hangs
clock.py       what time it is on a rank, and what its time was spent on
job.py         all ranks of one rehearsal, their groups, stores and failures
run.py         rehearse(): a function on virtual ranks
"""

import sys
import types

from teachdist.rehearse.answer import Rehearsal
from teachdist.rehearse.errors import CannotRehearse, Hang, RehearsalError
from teachdist.rehearse.run import rehearse

__all__ = ["CannotRehearse", "Hang", "Rehearsal", "RehearsalError", "rehearse"]


class _Callable(types.ModuleType):
    """This package, which can be called as well: teachdist.rehearse(fn, ranks=64)."""

    __call__ = staticmethod(rehearse)


sys.modules[__name__].__class__ = _Callable
