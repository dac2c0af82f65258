"""How the processes of a cluster are started: launchers for ipyparallel.

ipyparallel starts a controller and engines through launchers, and names them: "local", "mpi",
"ssh", "slurm". For one machine we bring two of our own:

- "fork": a fork server (``forkserver.py``), quick; Linux only;
- "stock": a new Python per engine, as ipyparallel does, but with the engine's id fixed to be the
  rank, and guarded so that it ends with the process that started it.

- "mpi": with mpiexec, as ipyparallel does, but the engine's id is the MPI rank without mpi4py.

Any other name goes to ipyparallel unchanged.
"""

import os
import sys
from pathlib import Path

from ipyparallel.cluster.launcher import (
    LocalControllerLauncher,
    LocalEngineLauncher,
    LocalEngineSetLauncher,
    MPIEngineSetLauncher,
)
from traitlets import Bool

_GUARDED = [sys.executable, "-m", "teachdist.notebook.engines.orphan_guard"]

# Longer than a loaded machine needs to answer.
_ENGINE_ARGS = ["--IPEngine.timeout=60", "--IPEngine.wait_for_url_file=60"]

# The hub admits an engine at its next heartbeat, so a short period makes a quick start. A rank
# that died is noticed by its nanny; a missed heartbeat only says that the machine is busy.
CONTROLLER_ARGS = [
    "--usethreads",
    "--HeartMonitor.period=200",
    "--HeartMonitor.max_heartmonitor_misses=600",
    "--IPController.ip=127.0.0.1",
]


def local_environment():
    """Environment variables for ranks that share this machine.

    One thread per rank, since the ranks share the cores; gloo on the loopback; and ``sys.path`` as
    it is here, so that a function defined in a module next to the caller is found by the ranks.
    """
    loopback = "lo" if sys.platform == "linux" else "lo0"
    return {
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
        "GLOO_SOCKET_IFNAME": os.environ.get("GLOO_SOCKET_IFNAME", loopback),
        "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path),
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    }


class Controller(LocalControllerLauncher):
    """ipyparallel's controller, ended with us."""

    private = Bool(False, config=True, help="Remove the profile directory when orphaned.")

    def find_args(self):
        """Command line."""
        remove = [f"--remove={self.profile_dir}"] if self.private else []
        module = self.controller_cmd[-1]
        return [*_GUARDED, *remove, module, *self.cluster_args, *self.controller_args]


class ForkEngines(LocalEngineLauncher):
    """An engine set behind one fork server."""

    def start(self, n):
        """Start the server; it forks ``n`` engines."""
        self.n = n
        self.environment = {**self.environment, **local_environment()}
        return super().start()

    def find_args(self):
        """Command line."""
        server = [
            sys.executable,
            "-m",
            "teachdist.notebook.engines.forkserver",
            f"--ranks={self.n}",
        ]
        return [*server, *_ENGINE_ARGS, *self.engine_args]


class StockEngine(LocalEngineLauncher):
    """One engine that asks the hub for its rank as its id."""

    def find_args(self):
        """Command line."""
        rank = f"--IPEngine.id={self.identifier}"
        engine = "teachdist.notebook.engines.engine"
        return [*_GUARDED, engine, *self.cluster_args, rank, *_ENGINE_ARGS, *self.engine_args]


class StockEngines(LocalEngineSetLauncher):
    """A set of such engines."""

    launcher_class = StockEngine

    def start(self, n):
        """Start ``n`` engines."""
        self.environment = {**self.environment, **local_environment()}
        return super().start(n)


class MpiEngines(MPIEngineSetLauncher):
    """Engines under mpiexec; ``RankEngine`` reads its rank from the environment."""

    @property
    def program(self):
        """What mpiexec starts."""
        return [sys.executable, "-m", "teachdist.notebook.engines.engine"]

    def start(self, n):
        """Start ``n`` engines."""
        path = {"PYTHONPATH": local_environment()["PYTHONPATH"]}
        self.environment = {**path, **self.environment}
        return super().start(n)


def find(name):
    """The launcher for ``name``: ours as a class, ipyparallel's by its name."""
    if name is None:
        name = "fork" if sys.platform == "linux" else "stock"
    return {"fork": ForkEngines, "stock": StockEngines, "mpi": MpiEngines}.get(name, name)


def known():
    """Names that ipyparallel knows."""
    from importlib.metadata import entry_points

    return sorted(entry.name for entry in entry_points(group="ipyparallel.engine_launchers"))
