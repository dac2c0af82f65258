"""How backends come and go: made by torch through `register`, gone at the latest with the process.

A process that ends without destroy_process_group still leaves its groups in order (unfinished
sends go out, others see "has left"), and a forked child never touches what belongs to its
parent: it closes its copies of the sockets and refuses to use the group.
"""

import atexit
import importlib
import os

import torch
import torch.distributed as dist

from teachdist.backend.backend import Backend, alive
from teachdist.backend.execution.options import Options
from teachdist.backend.group.joining import join
from teachdist.backend.native.delegate import Delegating
from teachdist.backend.torch_patches import patch_holder, patch_name, patch_spelling, uncompiled
from teachdist.backend.work import Work
from teachdist.collectives import DEFINITIONS
from teachdist.diagnose.log import configure, log
from teachdist.environment import switch, unread
from teachdist.tracing import whole_job


def create(backend_options, pg_options):
    """Made by torch for each group: the creator with `extended_api`."""
    options = pg_options
    timeout = backend_options.timeout
    if options is None:
        options = Options(timeout=timeout)
    elif not isinstance(options, Options):
        raise TypeError(
            f'pg_options of backend "teachdist" must be teachdist.Options, got '
            f"{type(options).__name__}"
        )
    kind = Delegating if _may_delegate(options) else Backend
    backend = kind(
        backend_options.store,
        backend_options.group_rank,
        backend_options.group_size,
        timeout,
        backend_options.group_id,
        backend_options.global_ranks_in_group,
        options,
    )
    if not dist.is_initialized():  # it is the job's first group that torch is making
        whole_job.begin()
        join(backend)
    return backend


def _may_delegate(options):
    """Whether calls of the group could ever go to a native backend."""
    named = any(options.delegate.values())
    return named or ("cuda" not in options.delegate and torch.cuda.device_count() > 0)


def register():
    """Make `init_process_group("teachdist")` work; torch calls it through the entry point."""
    patch_holder()
    patch_spelling()
    patch_name()
    uncompiled(Backend, Work)
    configure()
    for line in unread(DEFINITIONS):
        log.warning("%s", line)
    if switch("TEACHDIST_STORES", False):
        importlib.import_module("teachdist.stores")  # it puts itself under tcp://, file://, env://
    if "teachdist" not in dist.Backend.backend_list:
        dist.Backend.register_backend(
            "teachdist", create, extended_api=True, devices=["cpu", "cuda"]
        )


def communicators():
    """The memberships of this process that are not over."""
    return [
        backend.communicator for backend in list(alive) if backend.communicator.pid == os.getpid()
    ]


@atexit.register
def _leave_all():
    whole_job.end()
    for backend in list(alive):
        if backend.communicator.pid == os.getpid():
            backend.shutdown()


def _in_forked_child():
    for backend in list(alive):
        backend.communicator.forget()


os.register_at_fork(after_in_child=_in_forked_child)
