"""The processes behind a cluster: started by us, or somebody else's that we attach to.

Both kinds offer the same: ``client`` (ipyparallel's), ``renew()`` (the ranks' processes, new),
``stop()``. Each engine has an id and a uuid. Ids order the ranks (with our launchers the id is the
rank); the uuid is new with each process, so comparing uuids tells whether a rank still is the
process that joined the process group.
"""

import difflib
import importlib.metadata
import json
import logging
import re
import shutil
import tempfile
import time
from pathlib import Path

from teachdist.notebook.engines import launcher
from teachdist.notebook.errors import ClusterError

CLIENT_FILE = "ipcontroller-client.json"
NOTES_FILE = "teachdist.json"  # next to it: what somebody who attaches must know
OLDEST_TORCH = (2, 14)
MOST_RANKS = 64
MEMORY = (250, 100)  # MB: for all ranks together, and for each; measured with the fork server
# torch's own; others come with packages.
_BACKENDS = ("fake", "gloo", "mpi", "nccl", "ucc", "xccl")
_START_DEADLINE = 120.0
_RENEW_DEADLINE = 60.0
_LOOK_EVERY = 0.02

_LOG = logging.getLogger("teachdist.notebook")


class Started:
    """Processes that we start, and end."""

    def __init__(self, n, how, profile, notes, on_progress):
        self.n = n
        self.client = None
        self._directory = None
        self._cluster = None
        try:
            self._cluster = self._configured(how, profile)
            self._start(on_progress)
            self._leave(notes)
        except BaseException:
            self.stop()
            raise

    def _configured(self, how, profile):
        from ipyparallel import Cluster
        from traitlets.config import Config

        config = Config()
        arguments = {
            "log": _LOG,
            "config": config,
            "delay": 0,
            "shutdown_atexit": False,  # ours is silent
            "engine_launcher_class": launcher.find(how),
        }
        if profile is not None:
            arguments |= {"profile": profile, "load_profile": True}
        else:
            self._directory = tempfile.mkdtemp(prefix="teachdist-")
            config.Controller.private = True
            arguments |= {
                "profile_dir": self._directory,
                "load_profile": False,
                "cluster_id": "",
                "controller_args": launcher.CONTROLLER_ARGS,
                "controller_launcher_class": launcher.Controller,
                "send_engines_connection_env": how not in (None, "fork", "stock"),
            }
        return Cluster(**arguments)

    def _start(self, on_progress):
        deadline = time.monotonic() + _START_DEADLINE
        self._cluster.start_cluster_sync(n=self.n)
        self.client = self._cluster.connect_client_sync()
        while len(self.client.ids) < self.n:
            if on_progress is not None:
                on_progress(len(self.client.ids))
            self._check_alive(deadline)
            time.sleep(_LOOK_EVERY)

    def _check_alive(self, deadline):
        if _has_ended(self._engines) or time.monotonic() > deadline:
            there = len(self.client.ids)
            last = last_words(self._engines.get_output())
            raise ClusterError(f"only {there} of {self.n} ranks started; last words: {last}")

    def _leave(self, notes):
        """Leave a note for those who attach."""
        if self._directory is not None:
            renewable = isinstance(self._engines, launcher.ForkEngines)
            notes = {**notes, "n": self.n, "renewable": renewable}
            self.connection_file.with_name(NOTES_FILE).write_text(json.dumps(notes))

    @property
    def _engines(self):
        return next(iter(self._cluster.engines.values()))

    @property
    def connection_file(self):
        """The file that lets another notebook attach; readable by this user only."""
        return Path(self._cluster.controller.connection_files["client"])

    def renew(self):
        """New processes for all ranks."""
        old = engines_of(self.client)
        if isinstance(self._engines, launcher.ForkEngines):
            send_signal(self.client, old, "SIGKILL")
        else:
            self._cluster.restart_engines_sync()
        wait_for_new(self.client, self.n, gone=old, old=old)

    def stop(self):
        """End them all, and remove what they left."""
        if self.client is not None:
            self.client.close()
        if self._cluster is not None:
            # The controller last: if we are killed meanwhile, its guard removes the directory.
            self._cluster.stop_engines_sync()
            self._cluster.stop_controller_sync()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
        self.client = self._cluster = None


class Attached:
    """Processes that somebody else started; ``stop`` leaves them running."""

    def __init__(self, connection_file, n):
        from ipyparallel import Client

        self.connection_file = Path(connection_file)
        if not self.connection_file.exists():
            raise ClusterError(f"no cluster there any more: {connection_file} is gone")
        notes = self.connection_file.with_name(NOTES_FILE)
        self.notes = json.loads(notes.read_text()) if notes.exists() else {}
        self.client = Client(str(self.connection_file))
        there = len(self.client.ids)
        self.n = n or self.notes.get("n") or there
        if self.n > there:
            self.stop()
            raise ClusterError(f"that cluster has {there} ranks, {self.n} were asked for")

    def renew(self):
        """New processes for our ranks: killed ones are forked again by their server."""
        if not self.notes.get("renewable"):
            raise ClusterError("only the notebook that started these ranks can restart them")
        old = engines_of(self.client)
        ours = old[: self.n]
        send_signal(self.client, ours, "SIGKILL")
        wait_for_new(self.client, self.n, gone=ours, old=old)

    def stop(self):
        """Leave."""
        if self.client is not None:
            self.client.close()
        self.client = None


def _has_ended(engines):
    """Whether a process of an ipyparallel engine set has ended."""
    for one in getattr(engines, "launchers", {}).values() or [engines]:
        process = getattr(one, "process", None)  # remote ones have none here
        if one.state == "after" or (hasattr(process, "is_running") and not _runs(process)):
            return True
    return False


def _runs(process):
    import psutil

    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def last_words(log):
    """The line of a log that says best why a process ended: the last error, or the last line."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b|.*\bCRITICAL\b", line)]
    return (errors or lines or ["none"])[-1]


def engines_of(client):
    """The uuids of all processes that the hub knows now, in order of their ids."""
    return [uuid for _, uuid in sorted(list(client._engines.items()))]  # noqa: C414  a copy


def send_signal(client, uuids, name):
    """Send a signal to those of the engines that are there, busy or not; does not wait."""
    for uuid in set(engines_of(client)).intersection(uuids):
        client._send(
            client._control_stream, "signal_request", content={"sig": name}, ident=uuid.encode()
        )


def wait_for_new(client, n, gone, old):
    """Wait until the engines ``gone`` are gone, and ``n`` are there that are not ``old``."""
    deadline = time.monotonic() + _RENEW_DEADLINE
    while True:
        there = set(engines_of(client))
        new = len(there.difference(old))
        if new >= n and there.isdisjoint(gone):
            return
        if time.monotonic() > deadline:
            raise ClusterError(f"only {new} of {n} ranks came back; start others: %ranks N")
        time.sleep(_LOOK_EVERY)


def check_torch(version):
    """Raise if this torch is too old."""
    found = tuple(int(part) for part in version.split(".")[:2])
    if found < OLDEST_TORCH:
        oldest = ".".join(map(str, OLDEST_TORCH))
        raise ClusterError(f"torch {version} is too old, teachdist needs {oldest} or later")


def memory_of(n):
    """MB that ``n`` ranks need, about."""
    return MEMORY[0] + MEMORY[1] * n


def check_memory(n, free=None, held=0):
    """Raise if ``n`` ranks do not fit into ``free`` MB of memory (default: what is available)."""
    if free is None:
        import psutil

        free = psutil.virtual_memory().available // 2**20 + held
    needed = memory_of(n)
    if needed > free:
        raise ClusterError(f"{n} ranks need about {needed} MB of memory, {free} MB are available")


def check(n, backend, how, held=0):
    """Raise if such a cluster cannot be, as far as one can tell without starting anything.

    For the arguments see ``Cluster``; ``held``: the MB of memory that come free before it starts.
    """
    if isinstance(n, bool) or not isinstance(n, int):
        raise ValueError(f"the number of ranks must be a whole number, got {n!r}")
    if not 1 <= n <= MOST_RANKS:
        raise ValueError(f"the number of ranks must be 1 to {MOST_RANKS}, got {n}")
    check_backend(backend)
    if isinstance(launcher.find(how), str) and how not in launcher.known():
        raise ValueError(
            f"unknown launcher {how!r}{meant(how, ['fork', 'stock', *launcher.known()])}: fork, "
            f"stock, or one that ipyparallel knows: {', '.join(launcher.known())}"
        )
    if how in (None, "fork", "stock"):
        check_torch(importlib.metadata.version("torch"))
        check_memory(n, held=held)


def check_backend(name):
    """Raise ValueError if no backend of that name can be there.

    A package that teaches torch another device may bring a backend: then any name may do.
    """
    found = importlib.metadata.entry_points(group="torch.distributed.backends")
    known = {*_BACKENDS, *(one.name for one in found)}
    if importlib.metadata.entry_points(group="torch.backends"):
        return
    for part in name.lower().split(","):
        if (one := part.rpartition(":")[2]) not in known:
            raise ValueError(f"there is no backend {one!r}{meant(one, known)}")


def meant(word, known):
    """What a wrong word may have been meant to be: ``"; did you mean 'gloo'?"``, or ``""``."""
    like = difflib.get_close_matches(word.lower(), sorted(known), 1)
    return f"; did you mean {like[0]!r}?" if like else ""
