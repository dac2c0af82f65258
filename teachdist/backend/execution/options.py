"""Choices: per group (`Options`), for a stretch of code (`use`), or for a process (environment).

The nearest one wins: `use` over `Options` over TEACHDIST_<OP> over the catalogue's own choice.
The environment is read when a kind of call is made for the first time. An algorithm of your own
must be registered by then: by the script itself, or, if that shall stay as it is, by the files that
TEACHDIST_ALGORITHMS names (`own_files.py`):

    TEACHDIST_ALGORITHMS=mine.py TEACHDIST_ALL_REDUCE=mine torchrun --nproc-per-node 4 train.py

All ranks must choose alike; the algorithm is part of each call's fingerprint, so that a rank
that chose differently is told so instead of computing nonsense.
"""

import contextlib
import os
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from teachdist.collectives import DEFINITIONS, Algorithm, get
from teachdist.collectives.catalog import choices

_Base: Any = (getattr(dist, "BackendBase", None) or dist._Backend).Options


class Options(_Base):
    """`pg_options` of backend "teachdist".

    timeout: a timedelta, how long a call may wait. hint_after: seconds after which a waiting
    rank says for whom it waits. Keywords named after collectives choose algorithms:
    Options(all_reduce="ring", broadcast="binomial").

    delegate: another backend that does the work while this one watches (`native/delegate.py`):
    "gloo", "nccl", {"cpu": "gloo", "cuda": "nccl"}, or False for none at all. None: what the
    variable TEACHDIST_DELEGATE says, in the form gloo or cpu:gloo,cuda:nccl; else NCCL for CUDA
    tensors if it can serve them.
    """

    def __init__(self, timeout=timedelta(minutes=30), hint_after=1.0, delegate=None, **algorithms):
        super().__init__("teachdist", timeout)
        self.hint_after = float(hint_after)
        self.delegate = delegated(delegate)
        self.algorithms = checked(algorithms)
        self._own_limit = timeout

    def limit(self, default):
        """The timeout as a timedelta; `default` (seconds) if it was never set."""
        return self._own_limit if self._own_limit is not None else timedelta(seconds=default)


def delegated(given):
    """{device type: name of a backend, or None for none} from what `Options(delegate=)` takes."""
    if given is None:
        given = os.environ.get("TEACHDIST_DELEGATE") or {}
    if given is False:
        return {"cpu": None, "cuda": None}
    if isinstance(given, str):
        pairs = [part.partition(":") for part in given.lower().split(",")]
        if any(separator for _, separator, _ in pairs):
            return {device.strip(): name.strip() for device, _, name in pairs}
        return {"cuda" if given.lower() == "nccl" else "cpu": given.lower()}
    if not isinstance(given, dict):
        raise TypeError(
            f"delegate={given!r}: expected the name of a backend, a dict of device type to name, "
            "or False"
        )
    return dict(given)


_used: list[dict] = []


@contextlib.contextmanager
def use(**algorithms):
    """Choose algorithms for the calls made inside: with teachdist.use(all_reduce="ring"): ...

    Holds for every thread of the process, so also for the calls that autograd makes for
    DistributedDataParallel.
    """
    entry = checked(algorithms)
    _used.append(entry)
    choices.changes += 1
    try:
        yield
    finally:
        _used.remove(entry)
        choices.changes += 1


def checked(algorithms):
    """{collective: name} of the choices; refuses what does not exist."""
    found = {}
    for op, given in algorithms.items():
        if op not in DEFINITIONS:
            raise ValueError(f"{op}= is not a collective; known: {', '.join(DEFINITIONS)}")
        found[op] = given.name if isinstance(given, Algorithm) else given
        try:
            get(op, found[op])
        except ValueError as error:
            raise ValueError(
                f"{error}; your own must be registered on every rank: in a notebook by a cell that "
                "begins with %%ranks --here"
            ) from None
    return found


def chosen_by_user(op, options):
    """The name of the algorithm that the user chose for a collective, or None."""
    for chosen in (*reversed(_used), options.algorithms):
        if op in chosen:
            return chosen[op]
    return _from_environment(op)


def _from_environment(op):
    variable = f"TEACHDIST_{op.upper()}"
    name = os.environ.get(variable)
    if not name:
        return None
    try:
        return get(op, name).name
    except ValueError as error:
        raise ValueError(
            f"{variable}={name}: {error}; your own is registered by @teachdist.algorithm, before "
            "the first call, in the script or in a file that TEACHDIST_ALGORITHMS names"
        ) from None
