"""An order among ranks: "rank 0 here before rank 1 there".

    order = Sequencer()
    if dist.get_rank() == 0:
        with order(0):
            dist.send(x, 1)
    else:
        with order(1):  # begins when step 0 is over
            dist.recv(x, 0)

As in trio's class of this name, steps are numbered and each is taken once, by any rank. Ranks may
be threads or processes on several machines, so the order goes through the default group's store:
a step that is over writes the key for which the next one waits. It is for tests of what happens
when one rank is late: a sleep would be slow, and wrong on a busy machine.
"""

import contextlib
from datetime import timedelta

import torch.distributed as dist
from torch.distributed.distributed_c10d import _get_default_store


class Sequencer:
    """Steps 0, 1, 2, ... that ranks take one after the other: `with order(1): ...`.

    Every rank of the default group makes one at the same place of its program; the ranks' n-th
    Sequencers are the same. timeout: seconds that a step waits for the one before it; past it the
    store's error is raised. (Virtual ranks are told at once if that step cannot come.)
    """

    def __init__(self, timeout=60):
        store = _get_default_store()
        number = store.add(f"teachdist.testing/sequencers/{dist.get_rank()}", 1)
        self._store = dist.PrefixStore(f"teachdist.testing/sequencer/{number}", store)
        self._timeout = timedelta(seconds=timeout)

    @contextlib.contextmanager
    def __call__(self, step):
        """Wait until step - 1 is over, and let step + 1 begin afterwards.

        If what is inside raises, the next step doesn't begin. Raises ValueError for a negative
        step, RuntimeError for one that was taken already.
        """
        if step < 0:
            raise ValueError(f"Sequencer: steps begin at 0, got {step}")
        if self._store.add(f"taken {step}", 1) > 1:
            raise RuntimeError(f"Sequencer: step {step} was taken already; each is for one rank")
        if step:
            self._store.wait([f"step {step - 1} is over"], self._timeout)
        yield
        self._store.set(f"step {step} is over", b"")
