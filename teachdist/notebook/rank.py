"""What the notebook needs inside a rank: the functions here run in the engines.

The kernel sends a function by its module's name, so this module is the whole vocabulary between
kernel and rank. A rank joins the process group in two steps, since somebody must know the
store's address first: rank 0 opens the store (``host_store``), then everybody joins (``join``).
"""

import datetime
import importlib
import os
import socket
import sys

_kept = {}  # what must live as long as the rank


def hello():
    """(host name, process id, torch's version): who is there."""
    import torch

    return socket.gethostname(), os.getpid(), torch.__version__


def host_store(address, timeout):
    """Open this rank's TCPStore on ``address`` and return its port.

    The socket is made here and handed to torch, because torch itself would listen on all
    interfaces.
    """
    import torch.distributed as dist

    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.bind((address, 0))
        listener.listen()
    except OSError:
        listener.close()
        raise
    port = listener.getsockname()[1]
    _kept["hosted"] = dist.TCPStore(
        address,
        port,
        is_master=True,
        wait_for_workers=False,
        timeout=datetime.timedelta(seconds=timeout),
        master_listen_fd=listener.detach(),
    )
    return port


def join(rank, world_size, backend, address, port, timeout):
    """Become ``rank`` of ``world_size``: make the process group, fill the namespace.

    The names ``torch``, ``dist``, ``rank`` and ``world_size`` are there for the cells.
    """
    import torch
    import torch.distributed as dist

    if backend == "teachdist":
        importlib.import_module("teachdist.backend")  # registers itself
    if dist.is_initialized():
        dist.destroy_process_group()
    deadline = datetime.timedelta(seconds=timeout)
    store = dist.TCPStore(address, port, wait_for_workers=False, timeout=deadline)
    dist.init_process_group(
        backend, store=store, rank=rank, world_size=world_size, timeout=deadline
    )
    # Short enough to read, and the same on every rank.
    torch.set_printoptions(threshold=100, linewidth=88)
    names = {"torch": torch, "dist": dist, "rank": rank, "world_size": world_size}
    sys.modules["__main__"].__dict__.update(names)
    shell = _shell()
    if shell is not None:
        shell.user_ns.update(names)


def _shell():
    from IPython import get_ipython

    return get_ipython()
