"""Where torch stands in a Python backend's way, and what is done about it: all in one place.

What goes wrong without each was seen in torch 2.14 and 2.15. `tests/backend/test_torch_patches.py`
shows it in torch as it is, and fails as soon as torch does right by itself: then the repair goes.

| repair | without it | may go when |
| --- | --- | --- |
| `patch_holder` | is_completed() is never true, source_rank() raises | the holder asks the Work |
| `patch_spelling` | of a root outside the group only its number is said | the error says more |
| `patch_name` | a group's name() is "custom" | it says the name of the backend |
| `in_a_batch` | one request for a batch, documented is one for each | it returns one for each |
| `in_blocking_recv` | a receive from oneself hangs | recv is told from irecv |
| `batch_under_way` | what belongs to one batch is not known | an operation knows its batch |
| `count_groups` | after a failure ranks name one group differently | names come from no count |
| `reset_models` | DDP goes on with a backward pass cut short | DDP can be reset |
| `uncompiled` | torch.compile compiles the backend's own frames | there is a word for it |

Two means: a method of torch gets another (which asks the old one for everything that is not
ours), or the frames above are read, since torch calls a backend for two functions in one way.
"""

import gc
import sys
import threading
import types

import torch
import torch.distributed as dist

from teachdist.backend.work import Work, asked

_torchs = dist.distributed_c10d
_FILE = _torchs.__file__
_NEAR = 8  # frames between a method of a backend and dist.recv
_FAR = 16  # frames between a method of a backend and the function that the user called


def patch_holder():
    """What torch hands out in place of a Python Work answers as the Work does; once per process.

    torch wraps a Python Work in a holder that forwards `wait` and `get_future` and answers
    everything else by itself, wrongly. But the forwarded `get_future` shows where the Work is: it
    notes itself down (`asked`). For Works of others the old method answers.
    """
    for name in (
        "is_completed",
        "is_success",
        "exception",
        "result",
        "source_rank",
        "_source_rank",
        "synchronize",
        "block_current_stream",
        "get_future_result",
    ):
        old = getattr(dist.Work, name, None)
        if old is not None and not hasattr(old, "before_teachdist"):
            setattr(dist.Work, name, _forward(name, old))


def real_work(handle):
    """The Work of this package behind what torch handed out, or None."""
    if isinstance(handle, Work):
        return handle
    if type(handle) is not dist.Work:
        return None
    asked.work = None
    try:
        handle.get_future()
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
    method.before_teachdist = old
    _leave_alone(method.__code__)
    return method


def patch_spelling():
    """A root that is not in the group is told with what to write instead; once per process.

    `src=` and `dst=` count the ranks of the whole job, `group_src=` and `group_dst=` those of the
    group; torch's error names neither the ranks of the group nor the other spelling.
    """
    old = _torchs.get_group_rank
    if hasattr(old, "before_teachdist"):
        return

    def get_group_rank(group, global_rank):
        try:
            return old(group, global_rank)
        except ValueError as error:
            ranks = _ranks_of_ours(group)
            if not ranks:
                raise
            raise ValueError(
                f"rank {global_rank} is not in this group, whose ranks are {ranks}. src= and dst= "
                f"count the ranks of the whole job: for the first rank of the group write "
                f"src={ranks[0]}, or group_src=0 (dst={ranks[0]}, or group_dst=0)."
            ) from error

    get_group_rank.__doc__ = old.__doc__
    get_group_rank.before_teachdist = old
    _leave_alone(get_group_rank.__code__)
    _torchs.get_group_rank = get_group_rank


def patch_name():
    """A group's name() is that of its backend, as gloo's is; once per process."""
    old = dist.ProcessGroup.name
    if hasattr(old, "before_teachdist"):
        return

    def name(self):
        said = old(self)
        ours = said == "custom" and _ranks_of_ours(self)
        return "teachdist" if ours else said

    name.__doc__ = old.__doc__
    name.before_teachdist = old
    dist.ProcessGroup.name = name


def _ranks_of_ours(group):
    """The ranks of a group of this backend, by their numbers in the job; else None."""
    ranks = _torchs._world.pg_group_ranks.get(group)
    if ranks is None or "teachdist" not in _torchs._world.pg_map.get(group, ("",))[0]:
        return None
    return sorted(ranks)


def in_a_batch():
    """Whether batch_isend_irecv asks a property of the backend.

    It is documented to return a request for each operation, and makes a single one for all where
    the backend says that it can coalesce.
    """
    return sys._getframe(2).f_code.co_name == "batch_isend_irecv"


def in_blocking_recv():
    """Whether dist.recv called the backend; dist.irecv calls it in the same way."""
    return any(code.co_name == "recv" for code, _ in _torchs_frames(_NEAR))


def batch_under_way():
    """(a number for the batch_isend_irecv above, None without one; whether objects are moved)."""
    batch, objects = None, False
    for code, frame in _torchs_frames(_FAR):
        if code.co_name == "batch_isend_irecv":
            batch = _number_of_batch(frame)
        objects = objects or "_object" in code.co_name
    return batch, objects


def _torchs_frames(most):
    """(code, frame) of torch.distributed among the callers of our caller, `most` frames up."""
    frame = sys._getframe(2)
    while frame is not None and most:
        if frame.f_code.co_filename == _FILE:
            yield frame.f_code, frame
        frame, most = frame.f_back, most - 1


_batches = threading.local()


def _number_of_batch(frame):
    """A number for this call of batch_isend_irecv: it has as many operations as its list."""
    left = _batches.__dict__.setdefault("left", {})
    number, rest = left.pop(id(frame), (None, 0))
    if number is None:
        number = _batches.count = getattr(_batches, "count", 0) + 1
        rest = len(frame.f_locals["p2p_op_list"])
    if rest > 1:
        left[id(frame)] = number, rest - 1
    return number


def uncompiled(*classes):
    """Have torch.compile leave alone the methods of classes and subclasses, and what they call.

    Where compiled code calls an operation as it is, Dynamo looks at every Python frame below, also
    at those that C++ calls: it compiles them for each kind of argument, and guards on options that
    live for one call fail. `torch.compiler.disable` would do, but imports Dynamo, for a second; the
    mark that it sets on code in the end is set here.
    """
    for cls in classes:
        for value in vars(cls).values():
            for function in _functions(value):
                _leave_alone(function.__code__)
        uncompiled(*cls.__subclasses__())


def _functions(value):
    """The Python functions behind an attribute of a class."""
    if isinstance(value, property):
        value = value.fget
    value = getattr(value, "__func__", value)
    while value is not None:
        if isinstance(value, types.FunctionType):
            yield value
        value = getattr(value, "__wrapped__", None)


def _leave_alone(code):
    skip = torch._C._dynamo.eval_frame
    strategy = skip._FrameExecStrategy(skip._FrameAction.SKIP, skip._FrameAction.SKIP)
    skip.set_code_exec_strategy(code, strategy)


def groups_made():
    """How many groups torch counts on this rank; the name of the next one comes from it."""
    return _torchs._world.group_count


def count_groups(number):
    """Have torch count on from a number: ranks that failed at different groups agree again."""
    _torchs._world.group_count = number


def reset_models():
    """DistributedDataParallel forgets a backward pass that was cut short; it has no call for it.

    Such a model is found by what it holds: a process group, and a reducer beside it.
    """
    groups = list(_torchs._world.pg_map)
    for holder in gc.get_referrers(*groups):
        holder = holder if isinstance(holder, dict) else getattr(holder, "__dict__", {})
        if isinstance(reducer := holder.get("reducer"), dist.Reducer):
            reducer._reset_state()
