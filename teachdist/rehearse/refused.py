"""What virtual ranks cannot do: an error that names it, in place of something strange later."""

import importlib
import os
import signal

from teachdist.rehearse.errors import CannotRehearse

_PROCESSES = "needs a process for each rank: run it with torchrun, or with %ranks N (at most 64)"
_REFUSED = {
    ("os", "_exit"): "os._exit would end all ranks, which are threads of this process; raise "
    "SystemExit instead",
    ("os", "abort"): "os.abort would end all ranks, which are threads of this process",
    ("os", "kill"): f"os.kill {_PROCESSES}",
    (
        "signal",
        "signal",
    ): f"signal.signal is the whole process's; a handler for one rank {_PROCESSES}",
    ("torch.distributed.rpc", "init_rpc"): f"torch.distributed.rpc {_PROCESSES}",
    ("torch.multiprocessing", "spawn"): f"torch.multiprocessing.spawn {_PROCESSES}; rehearse the "
    "function that it is given: teachdist.rehearse(fn, ranks=N)",
    ("torch.multiprocessing", "start_processes"): f"torch.multiprocessing {_PROCESSES}",
}


def patch_refused(patches, job):
    """Have what cannot work say so, on ranks' threads."""
    import sys

    for (module, name), words in _REFUSED.items():
        there = {"os": os, "signal": signal}.get(module) or sys.modules.get(module)
        if there is None and module == "torch.distributed.rpc":
            continue
        if there is None:
            there = importlib.import_module(module)
        patches.for_ranks(job.scheduler, there, name, lambda _, words=words: _refuse(words))


def _refuse(words):
    def refused(*args, **kwargs):
        raise CannotRehearse(f"rehearse: {words}.")

    return refused
