"""Ranks as threads of this process: the quickest way to run a collective for real.

    def job(backend, rank): ...
    results = threaded(3).run(job)          # a list, by rank; raises what the first rank raised

The backends are made directly, without torch's process group, and kept between tests.
"""

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import torch
import torch.distributed as dist

from teachdist.backend import Backend, Options

_groups = {}
_names = itertools.count()


def threaded(size, **options):
    """The group of `size` threads that tests share."""
    key = (size, tuple(sorted(options.items())))
    group = _groups.get(key)
    if group is None or group.failed:
        group = _groups[key] = Group(size, **options)
    return group


def close_groups():
    """End all shared groups."""
    while _groups:
        _groups.popitem()[1].close()


class Group:
    """`size` backends that find each other through a HashStore, and a thread for each."""

    def __init__(self, size, timeout=20.0, **options):
        self.size = size
        self.failed = False
        limit = timedelta(seconds=timeout)
        store = dist.PrefixStore(f"group{next(_names)}", dist.HashStore())
        self._threads = ThreadPoolExecutor(size, thread_name_prefix="rank")
        options = Options(timeout=limit, **options)
        made = [
            self._threads.submit(Backend, store, rank, size, limit, "threads", (), options)
            for rank in range(size)
        ]
        self.backends = [each.result() for each in made]

    def run(self, job):
        """job(backend, rank) on all ranks at once."""
        outcomes = self.outcomes(job)
        if self.errors:
            raise self.errors[0]  # the others are its consequences
        return outcomes

    def outcomes(self, job):
        """What each rank returned or raised."""
        barrier = threading.Barrier(self.size)
        self.errors = []

        def rank_of(rank):
            barrier.wait()
            try:
                return job(self.backends[rank], rank)
            except Exception as error:  # noqa: BLE001  it is part of the outcome
                self.errors.append(error)
                return error

        outcomes = list(self._threads.map(rank_of, range(self.size)))
        self.failed = any(backend.communicator.broken is not None for backend in self.backends)
        if self.failed:
            self.close()
        return outcomes

    def close(self):
        """Leave the group."""
        for backend in self.backends:
            backend.shutdown()
        self._threads.shutdown()


def opts_of(kind, asynchronous, **fields):
    """torch's options object for a call."""
    opts = getattr(torch._C._distributed_c10d, kind)()
    if hasattr(opts, "asyncOp"):
        opts.asyncOp = asynchronous
    for name, value in fields.items():
        setattr(opts, name, value)
    return opts
