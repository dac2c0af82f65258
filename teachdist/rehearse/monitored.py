"""The monitored barrier among virtual ranks: rank 0 waits so long, and names who is missing.

The texts are those of gloo, which users know; the waiting is in virtual time.
"""

from teachdist.backend.p2p.monitored import came, missed
from teachdist.diagnose.call_site import call_site
from teachdist.rehearse.actors import Signal


class Roll:
    """One monitored barrier of a group. verdict: None until rank 0 has decided."""

    def __init__(self):
        self.here = set()
        self.came, self.decided = Signal(), Signal()
        self.missing = None
        self.until = 0.0


def monitored_barrier(communicator, seconds, wait_all_ranks):
    """Block until all ranks of the group have come, at most `seconds`; None.

    Raises RuntimeError; on rank 0 it names the ranks that are missing (the first one, or all with
    wait_all_ranks), on the others it says that they did come.
    """
    clock, group, scheduler = (
        communicator.whose.clock,
        communicator.group,
        communicator.job.scheduler,
    )
    clock.enter()
    try:
        words = f"monitored_barrier() at {call_site(2)}"
        communicator.usable(words)
        communicator.rolls += 1
        roll = group.rolls.setdefault((communicator.sequence, communicator.rolls), Roll())
        roll.here.add(communicator.rank)
        roll.until = max(roll.until, clock.time)
        roll.came.notify()
        everybody = set(range(communicator.size))
        if communicator.rank == 0:
            scheduler.wait(roll.came, lambda: roll.here == everybody, seconds, words)
            roll.missing = sorted(everybody - roll.here)
            roll.decided.notify()
        else:
            scheduler.wait(roll.decided, lambda: roll.missing is not None, seconds, words)
        clock.advance(roll.until, "wait", words)
    finally:
        clock.leave()
    if roll.missing == []:
        return
    missing = roll.missing if roll.missing is not None else [0]
    if communicator.rank == 0:
        if not wait_all_ranks:
            missing = missing[:1]
        raise RuntimeError(missed(communicator, missing, seconds, "it did not come in time"))
    raise RuntimeError(came(communicator, missing, seconds))
