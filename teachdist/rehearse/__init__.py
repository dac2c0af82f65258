"""Virtual ranks: an unchanged program on a thousand ranks of one process.

Threads that take turns
    scheduler.py        one thread runs at a time; who runs next, alarms, hangs
    actors.py           threads, signals that they wait for
    watchdog.py         sees a thread that stands still with the baton
    waits.py            locks, threads, sleep and clocks in the ranks' own code
Each rank a process
    job.py, rank.py     all ranks of one rehearsal; one rank
    state.py            what a process has for itself, exchanged at a switch
    torchs.py           torch's doors: backends, stores, rendezvous, meshes
    store.py            a store in memory
    sharding.py         ranks that ask DTensor the same question share the answer
    cuda_as_cpu.py, novalues.py, refused.py, patches.py
Communicating
    backend.py          what torch calls
    communicator.py, group.py a rank in a group; how the calls of its ranks meet
    values.py           what a collective means, computed
    point_to_point.py, monitored.py, work.py
    failures.py, verdict.py, errors.py   who failed, who waits for whom
Time
    clock.py            what time it is on a rank, and what its time was spent on
    machine.py          the machine that is rehearsed, by name or in a line
    prices.py           what communicating costs there
    model.py            what computing costs on a device
Faces
    run.py, script.py   a function; a script written for torchrun
    explore.py          a function in other orders
    orders.py, ways.py  what may go either way, and who decides it
    answer.py, summary.py, timeline.py, traced.py
"""

import sys
import types

from teachdist.rehearse.answer import Rehearsal
from teachdist.rehearse.errors import BrokenRules, CannotRehearse, Hang, RehearsalError
from teachdist.rehearse.run import rehearse

__all__ = ["BrokenRules", "CannotRehearse", "Hang", "Rehearsal", "RehearsalError", "rehearse"]


class _Callable(types.ModuleType):
    """This package, which can be called as well: teachdist.rehearse(fn, ranks=64)."""

    __call__ = staticmethod(rehearse)


sys.modules[__name__].__class__ = _Callable
