"""The stores that tests run on: torch's, ours, and one's client with the other's server.

torch's C++ client holds the interpreter's lock in some calls, so a Python server must not be in its
process: where they meet, the server is a program of its own.
"""

import contextlib
import itertools
import os
import subprocess
import sys
from datetime import timedelta

import torch.distributed as dist

from teachdist import stores

SHORT = timedelta(seconds=0.3)
LONG = timedelta(seconds=30)


@contextlib.contextmanager
def server_process():
    """Our server in a process of its own; its port."""
    command = [sys.executable, "-m", "teachdist.stores"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield int(process.stdout.readline().rpartition(":")[2])
        finally:
            process.terminate()


class Makers:
    """One method for each kind of store; each makes a store that is empty but for bookkeeping."""

    def __init__(self, tmp_path, exits):
        self._paths = (str(tmp_path / f"store{i}") for i in itertools.count())
        self._exits = exits

    def torchs_tcp(self, timeout=LONG):
        return dist.TCPStore("127.0.0.1", 0, 1, True, timeout)

    def our_tcp(self, timeout=LONG):
        return self._closing(stores.TCPStore("127.0.0.1", 0, 1, True, timeout))

    def our_client_of_torchs_server(self, timeout=LONG):
        server = dist.TCPStore("127.0.0.1", 0, 1, True, LONG)
        self._exits.callback(lambda: server.port)  # alive until then
        return self._closing(stores.TCPStore("127.0.0.1", server.port, timeout=timeout))

    def torchs_client_of_our_server(self, timeout=LONG):
        port = self._exits.enter_context(server_process())
        return dist.TCPStore("127.0.0.1", port, 1, False, timeout)

    def torchs_hash(self, timeout=LONG):
        return self._with(dist.HashStore(), timeout)

    def our_hash(self, timeout=LONG):
        return self._with(stores.HashStore(), timeout)

    def torchs_file(self, timeout=LONG):
        return self._with(dist.FileStore(next(self._paths), 1), timeout)

    def our_file(self, timeout=LONG):
        return self._closing(self._with(stores.FileStore(next(self._paths), 1), timeout))

    def torchs_prefix(self, timeout=LONG):
        return dist.PrefixStore("p", self.torchs_tcp(timeout))

    def our_prefix(self, timeout=LONG):
        return stores.PrefixStore("p", self.our_tcp(timeout))

    def our_prefix_of_torchs_hash(self, timeout=LONG):
        return stores.PrefixStore("p", self.torchs_hash(timeout))

    def torchs_prefix_of_our_hash(self, timeout=LONG):
        below = self.our_hash(timeout)
        self._exits.callback(lambda: below.timeout)  # C++ does not keep it alive
        return dist.PrefixStore("p", below)

    def _closing(self, store):
        self._exits.callback(store.close)
        return store

    def _with(self, store, timeout):
        store.set_timeout(timeout)
        return store


ALL = [name for name in vars(Makers) if not name.startswith("_")]
OURS = ["our_tcp", "our_client_of_torchs_server", "our_hash", "our_file", "our_prefix"]
TCP = [name for name in ALL if "tcp" in name or "client" in name]
# torch's FileStore has no queues, and its PrefixStore does not reach those of a store in Python.
WITH_QUEUES = [n for n in ALL if n not in ("torchs_file", "torchs_prefix_of_our_hash")]


def pid_of_nobody():
    """The pid of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def open_files():
    """What this process has open; to see that nothing is left."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the listing's own
            found[name] = os.readlink(f"/proc/self/fd/{name}")
    return found
