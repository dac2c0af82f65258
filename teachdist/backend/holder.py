"""The holder: what torch hands to the caller in place of a Python Work, repaired.

torch wraps a Python Work in a holder of its own that forwards `wait` and `get_future` and
answers everything else by itself, wrongly: `is_completed()` is never true, `source_rank()`
raises, so `dist.recv()` from anybody cannot say who sent. But the holder does forward
`get_future` to Python, and on that way the real Work can be found: it notes itself down (`asked`)
when asked for its future.

The patch touches nothing but Works of this package: for all others the old method answers.
"""

import torch.distributed as dist

from teachdist.backend.work import Work, asked

_NAMES = (
    "is_completed",
    "is_success",
    "exception",
    "result",
    "source_rank",
    "_source_rank",
    "synchronize",
    "block_current_stream",
    "get_future_result",
)
_old = {}


def patch_holder():
    """Make torch's holder answer as the Work inside it does; once per process."""
    if _old:
        return
    _old["get_future"] = dist.Work.get_future
    for name in _NAMES:
        old = getattr(dist.Work, name, None)
        if old is not None:
            _old[name] = old
            setattr(dist.Work, name, _forward(name, old))


def real_work(handle):
    """The Work of this package behind what torch handed out, or None."""
    if isinstance(handle, Work):
        return handle
    if type(handle) is not dist.Work:
        return None
    asked.work = None
    try:
        _old["get_future"](handle)
    except (RuntimeError, NotImplementedError):
        return None
    return asked.work


def _forward(name, old):
    def method(self, *args):
        work = None if isinstance(self, Work) else real_work(self)
        if work is None:
            return old(self, *args)
        return getattr(work, name.lstrip("_"))(*args)

    method.__name__ = name
    method.__doc__ = old.__doc__
    return method
