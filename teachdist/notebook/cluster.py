"""``Cluster(n)``: n ranks, each an IPython engine, together one process group.

    with teachdist.Cluster(4) as cluster:
        cluster.run(train, epochs=3)     # a list: what each rank returned

The kernel (or script) stays outside the process group: it asks, the ranks do. Everything goes
through ipyparallel, so any of its launchers can start the ranks; for one machine we bring quicker
ones (``launcher.py``). All sockets are on the loopback unless another launcher is asked for, and
requests are signed with a key that only this user can read, as ipyparallel does by default.
"""

import atexit
import functools
import logging
import os
import shutil
import tempfile
import time

from teachdist.notebook import launcher, rank, tasks
from teachdist.notebook.errors import ClusterError

MOST_RANKS = 64
_START_DEADLINE = 120.0
_LOG = logging.getLogger("teachdist.notebook")


class Cluster:
    """``n`` ranks in one process group.

    Args:
        n: how many ranks, 1 to 64.
        backend: for ``init_process_group``: "teachdist", "gloo", ...
        launcher: how ranks are started: None (the quickest that works here), "fork", "stock", or
            a name that ipyparallel knows ("mpi", "ssh", "slurm").
        profile: an IPython profile, for ipyparallel's configuration.
        timeout: seconds that a collective may wait; the process group's time-out.
        on_progress: called with the number of ranks that are there, while they start.

    Raises:
        ValueError: an argument is wrong.
        ClusterError: the ranks cannot be started here.
    """

    def __init__(
        self, n, backend="teachdist", *, launcher=None, profile=None, timeout=300, on_progress=None
    ):
        self.n = _checked(n)
        self.backend = backend
        self.launcher = launcher
        self.timeout = float(timeout)
        self._profile = profile
        self._private_directory = None
        self._processes = None
        self.client = None
        try:
            self._start(on_progress)
            self._join()
        except BaseException:
            self.stop()
            raise
        atexit.register(self.stop)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def __repr__(self):
        state = "stopped" if self.client is None else f"backend {self.backend}"
        return f"<Cluster of {self.n} rank{'s' if self.n > 1 else ''}, {state}>"

    # Starting and stopping

    def _start(self, on_progress):
        from ipyparallel import Cluster as Processes

        self._processes = Processes(**self._how())
        deadline = time.monotonic() + _START_DEADLINE
        self._processes.start_cluster_sync(n=self.n)
        self.client = self._processes.connect_client_sync()
        while len(self.client.ids) < self.n:
            if on_progress is not None:
                on_progress(len(self.client.ids))
            self._check_starting(deadline)
            time.sleep(0.05)

    def _how(self):
        from traitlets.config import Config

        config = Config()
        how = {
            "log": _LOG,
            "config": config,
            "delay": 0,
            "shutdown_atexit": False,  # we do it, silently
            "controller_args": launcher.CONTROLLER_ARGS,
            "engine_launcher_class": launcher.find(self.launcher),
        }
        if self._profile is not None:
            return {**how, "profile": self._profile, "load_profile": True}
        self._private_directory = tempfile.mkdtemp(prefix="teachdist-")
        config.Controller.private = True
        return {
            **how,
            "profile_dir": self._private_directory,
            "load_profile": False,
            "cluster_id": "",
            "controller_launcher_class": launcher.Controller,
            "send_engines_connection_env": False,  # engines wait for the file, while importing
        }

    def _check_starting(self, deadline):
        states = [engines.state for engines in self._processes.engines.values()]
        if time.monotonic() < deadline and "after" not in states:
            return
        said = [engines.get_output() for engines in self._processes.engines.values()]
        last = next((line for line in reversed("".join(said).splitlines()) if line.strip()), "")
        raise ClusterError(f"only {len(self.client.ids)} of {self.n} ranks started: {last.strip()}")

    def _join(self):
        """Make the process group."""
        address = "127.0.0.1"
        [port] = self._call([0], rank.host_store, address, self.timeout)
        group = functools.partial(
            rank.join,
            world_size=self.n,
            backend=self.backend,
            address=address,
            port=port,
            timeout=self.timeout,
        )
        self._gather([self._apply(r, group, (r,), {}) for r in range(self.n)])

    def stop(self):
        """End every rank. Safe to call twice."""
        atexit.unregister(self.stop)
        client, self.client = self.client, None
        processes, self._processes = self._processes, None
        if client is not None:
            client.close()
        if processes is not None:
            processes.stop_cluster_sync()
        if self._private_directory is not None:
            shutil.rmtree(self._private_directory, ignore_errors=True)

    # Asking the ranks

    def run(self, function, *args, **kwargs):
        """Call ``function(*args, **kwargs)`` on every rank at the same time.

        A function that was defined in a notebook or script sees the names of the *ranks*:
        ``torch``, ``dist``, ``rank``, ``world_size``, and what cells have defined there.

        Returns:
            What it returned, a list by rank.

        Raises:
            RanksError: the function raised on some rank.
        """
        return self._call(range(self.n), function, *args, **kwargs)

    def _call(self, ranks, function, *args, **kwargs):
        asked = [self._apply(r, function, args, kwargs) for r in ranks]
        return self._gather(asked)

    def _gather(self, asked):
        stuck = tasks.wait(asked, self.interrupt)
        tasks.raise_failures(asked, stuck)
        return [task.value for task in asked]

    def interrupt(self, ranks=None):
        """Send Ctrl-C to ranks (default: all). It ends Python code, not a wait inside C++."""
        targets = self._identities(range(self.n) if ranks is None else ranks)
        for identity in targets:
            self._connected()._send(
                self.client._control_stream,
                "signal_request",
                content={"sig": "SIGINT"},
                ident=identity,
            )

    def _connected(self):
        if self.client is None:
            raise ClusterError("this cluster was stopped; start another: Cluster(n), %ranks N")
        return self.client

    def _identities(self, ranks):
        engines = self._connected()._engines
        return [engines[r].encode() for r in ranks]

    def _apply(self, r, function, args, kwargs):
        """Ask rank ``r`` to call a function; a Task."""
        client = self._connected()
        return tasks.Task(
            r,
            lambda hook: client.send_apply_request(
                client._mux_stream,
                function,
                list(args),
                kwargs,
                ident=self._identities([r])[0],
                message_future_hook=hook,
            ),
        )

    def _execute(self, r, code):
        """Ask rank ``r`` to execute a cell; a Task."""
        client = self._connected()
        return tasks.Task(
            r,
            lambda hook: client.send_execute_request(
                client._mux_stream,
                code,
                silent=False,
                ident=self._identities([r])[0],
                message_future_hook=hook,
            ),
        )


def _checked(n):
    if isinstance(n, bool) or not isinstance(n, int):
        raise ValueError(f"the number of ranks must be a whole number, got {n!r}")
    if not 1 <= n <= MOST_RANKS:
        raise ValueError(f"the number of ranks must be 1 to {MOST_RANKS}, got {n}")
    return n
