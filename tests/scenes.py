"""Scenes: what ranks do, what each of them then says, and how long it took.

    def test_released():
        def scene(rank):
            if rank == 1:
                raise KeyError("lost")
            dist.barrier()

        quiet, failed = play(scene)
        assert "rank 1 failed: KeyError" in quiet.said

A scene is a whole program: its ranks make a process group of their own, run under
`teachdist.backend.guard()` as a script would, and leave. An exception is part of the outcome, so
the processes stay and the next scene begins at once.
"""

import logging
import os
import time
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist
from ranks import shared_pool


@dataclass
class Outcome:
    """What one rank returned or raised, what it logged, and for how many seconds it played."""

    value: object = None
    error: BaseException | None = None
    log: list = field(default_factory=list)
    seconds: float = 0.0

    @property
    def said(self):
        """Log and error as one text."""
        last = [] if self.error is None else [f"{type(self.error).__name__}: {self.error}"]
        return "\n".join([*self.log, *last])


_scenes = 0


def play(scene, *args, n=2, timeout=30.0, options=None, hosts=None):
    """Run scene(rank, *args) on n ranks; their outcomes.

    timeout: of the group, in seconds. options: keywords for `teachdist.Options`. hosts: for each
    rank a name; ranks with different names take each other for ranks of different hosts.
    """
    global _scenes
    _scenes += 1
    how = (_scenes, n, timeout, options or {}, hosts)
    return shared_pool(n, backend=None).run(_play, scene, args, how)


def _play(scene, args, how):
    number, n, timeout, options, hosts = how
    from teachdist.backend import Options, guard

    rank, directory = int(os.environ["RANK"]), Path(os.environ["RANKS_DIRECTORY"])
    if hosts is not None:
        os.environ["TEACHDIST_HOST"] = hosts[rank]
    outcome = Outcome()
    log, handler = logging.getLogger("teachdist"), _Keeper(outcome.log)
    log.addHandler(handler)
    limit = timedelta(seconds=timeout)
    dist.init_process_group(
        "teachdist",
        store=dist.FileStore(str(directory / f"scene{number}"), n),
        rank=rank,
        world_size=n,
        timeout=limit,
        pg_options=Options(timeout=limit, **options),
    )
    began = time.monotonic()
    try:
        with guard():
            outcome.value = scene(rank, *args)
    except BaseException as error:  # noqa: BLE001  it is the outcome
        error.__traceback__ = error.__cause__ = error.__context__ = None
        outcome.error = error
    outcome.seconds = time.monotonic() - began
    if dist.is_initialized():
        dist.destroy_process_group()
    log.removeHandler(handler)
    os.environ.pop("TEACHDIST_HOST", None)
    return outcome


class _Keeper(logging.Handler):
    def __init__(self, kept):
        super().__init__()
        self.kept = kept

    def emit(self, record):
        self.kept.append(record.getMessage())
