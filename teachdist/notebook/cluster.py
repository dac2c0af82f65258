"""``Cluster(n)``: n ranks, each an IPython engine, together one process group.

    with teachdist.Cluster(4) as cluster:
        cluster.run(train, epochs=3)     # a list: what each rank returned

The kernel (or script) stays outside the process group: it asks, the ranks do. Everything goes
through ipyparallel, so any of its launchers can start the ranks; for one machine we bring quicker
ones (``engines/launcher.py``). All sockets are on the loopback unless another launcher is asked
for, and requests are signed with a key that only this user can read, as ipyparallel does by
default.
"""

import atexit
import uuid

from teachdist.notebook.cells import status
from teachdist.notebook.cells.live import in_notebook
from teachdist.notebook.cells.outputs import show, show_late, whole
from teachdist.notebook.engines import processes, rank, requests
from teachdist.notebook.engines.listening import Late
from teachdist.notebook.errors import ClusterError, RanksError, explained
from teachdist.words import ranks_label


class Cluster:
    """``n`` ranks in one process group.

    Args:
        n: how many ranks, 1 to 64.
        backend: for ``init_process_group``: "teachdist", "gloo", ...
        launcher: how ranks are started: None (the quickest that works here), "fork", "stock", or
            a name that ipyparallel knows ("mpi", "ssh", "slurm").
        profile: an IPython profile with ipyparallel's configuration.
        address: where rank 0 opens the store (default: the loopback if all ranks are on one
            host, else rank 0's host name).
        port: the store's port; 0 chooses a free one.
        timeout: seconds that a collective may wait: the process group's time-out.
        on_progress: called with the number of ranks that are there, while they start.

    Raises:
        ValueError: an argument is wrong.
        ClusterError: the ranks cannot be started here; one line says why.
    """

    def __init__(
        self,
        n,
        backend="teachdist",
        *,
        launcher=None,
        profile=None,
        address=None,
        port=0,
        timeout=300,
        on_progress=None,
    ):
        self.n = n
        processes.check(n, backend, launcher)
        settings = {"backend": backend, "address": address, "port": port, "timeout": timeout}
        started = processes.Started(self.n, launcher, profile, settings, on_progress)
        self.launcher = launcher
        self._set_up(started, settings)
        self._join_or_stop()

    @classmethod
    def attach(cls, connection_file, n=None, *, backend=None, fresh=False):
        """Use ranks that another notebook started.

        Args:
            connection_file: the other cluster's ``connection_file``.
            n: use the first ``n`` ranks (default: all).
            backend: another backend than theirs; only together with ``fresh``.
            fresh: restart the ranks, as an empty process group of ``n``; else join in: names that
                the other notebook defined are there.
        """
        if backend is not None:
            processes.check_backend(backend)
        attached = processes.Attached(connection_file, n)
        settings = {"backend": "teachdist", "address": None, "port": 0, "timeout": 300}
        settings |= {key: attached.notes[key] for key in settings if key in attached.notes}
        settings["port"] = 0  # theirs is taken
        if backend is not None:
            settings["backend"] = backend
        self = cls.__new__(cls)
        self.n = attached.n
        self.launcher = None
        self._set_up(attached, settings)
        if fresh:
            try:
                self.restart()
            except BaseException:
                self.stop()
                raise
        return self

    def _set_up(self, started, settings):
        self._processes = started
        self._settings = settings
        self._pending = []  # tasks that may have no answer yet
        self._failed = False  # then the ranks must recover before anything else
        self._said = {}  # the last cell's, or call's: {rank: items}
        self._late = Late(started.client)
        self._members = processes.engines_of(started.client)[: self.n]  # uuids, by rank
        atexit.register(self.stop)

    def _join_or_stop(self):
        try:
            self._join()
        except BaseException:
            self.stop()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def __repr__(self):
        state = "stopped" if self._processes is None else f"backend {self.backend}"
        return f"<Cluster of {self.n} rank{'s' if self.n > 1 else ''}, {state}>"

    @property
    def backend(self):
        """The process group's backend."""
        return self._settings["backend"]

    @property
    def client(self):
        """The client of ipyparallel, for what is not offered here."""
        if self._processes is None:
            raise ClusterError("this cluster was stopped; start another: Cluster(n), %ranks N")
        return self._processes.client

    @property
    def connection_file(self):
        """Path of the file with which another notebook attaches; only this user can read it."""
        return self._processes.connection_file

    def _join(self):
        """Make the process group of the processes that are there now."""
        self._members = processes.engines_of(self.client)[: self.n]
        timeout = float(self._settings["timeout"])
        address, port = self._settings["address"], self._settings["port"]
        try:
            there = self.ask(rank.hello)
            hosts = [host for host, _ in there]
            for _, version in there:
                processes.check_torch(version)
            if address is None:
                address = "127.0.0.1" if len(set(hosts)) == 1 else hosts[0]
            port = self.ask(rank.host_store, address, port, timeout, on=[0])[0]
            meeting = (self.backend, address, port, timeout)
            self._ask_each(lambda r: (rank.join, (r, self.n, hosts[:r].count(hosts[r]), *meeting)))
        except RanksError as error:
            raise ClusterError(explained(error, self.backend, address, port)) from None

    def restart(self):
        """New processes for all ranks, and a new process group. What cells defined is gone."""
        self._pending, self._failed = [], False
        self._processes.renew()
        self._join()

    def stop(self):
        """End every rank (of a cluster that was attached to: only leave). Safe to call twice."""
        atexit.unregister(self.stop)
        started, self._processes = self._processes, None
        if started is not None:
            started.stop()

    def interrupt(self, on=None):
        """Send Ctrl-C to ranks (default: all). It ends Python code, not a wait inside C++."""
        whom = [self._members[r] for r in (range(self.n) if on is None else on)]
        processes.send_signal(self.client, whom, "SIGINT")

    def status(self):
        """What each rank is doing now, also while they are blocked: a list of ``RankStatus``."""
        return self.inquire().answer()

    def inquire(self):
        """Ask for the status without waiting: a ``status.Inquiry``."""
        return status.Inquiry(self.client, self._members)

    @property
    def busy(self):
        """Ranks that have not answered yet: a sorted list."""
        self._pending = [task for task in self._pending if not task.done]
        return sorted({task.rank for task in self._pending})

    def run(self, function, *args, **kwargs):
        """Call ``function(*args, **kwargs)`` on every rank at the same time.

        A function that was defined in a notebook or script sees the names of the *ranks*:
        ``torch``, ``dist``, ``rank``, ``world_size``, and what cells have defined there. What it
        prints is shown when all are done.

        Returns:
            What it returned, a list by rank.

        Raises:
            RanksError: the function raised on some rank.
        """
        asked = self.send(lambda _: (rank.call, (function, args, kwargs)))
        try:
            self.wait(asked)
        finally:
            self.show(asked, "all of it: print(cluster.output()), cluster being yours")
        return [task.value for task in asked]

    def show(self, asked, remedy):
        """Show what was said for ``asked``, and before it what came late to earlier ones.

        In a notebook no more of a rank than its front end takes; ``remedy`` says how to see it.
        """
        self.show_late()
        self._said = {task.rank: task.items for task in asked}
        show(self._said, remedy if in_notebook() else None)

    def show_late(self):
        """Show what threads and children of ranks have printed after their cell was over."""
        show_late(self._late.take(self._members))

    def output(self):
        """What the last cell or call has printed, all of it, as one text."""
        return whole(self._said)

    def push(self, **names):
        """Define names on every rank."""
        self.ask(rank.push, names)

    def pull(self, name, on=None):
        """The value of a name, or of an expression, on each rank: a list by rank."""
        return self.ask(rank.pull, name, on=on)

    def ask(self, function, *args, on=None):
        """Call a function of ``engines/rank.py`` on some ranks; their answers. Nothing is shown."""
        return self._ask_each(lambda _: (function, args), on, quiet=True)

    def _ask_each(self, what, on=None, quiet=False):
        asked = self.send(what, on, quiet)
        self.wait(asked)
        return [task.value for task in asked]

    def execute(self, cell, on=None, number=None):
        """Send a cell's text to ranks, without waiting; ``number`` is for its tracebacks.

        Returns:
            A list of ``Task``, for ``wait``.
        """
        on = self.ready(on)
        if number is not None:
            self._send(lambda _: (rank.number, (number,)), on, quiet=True)
        return self._send(lambda _: cell, on)

    def send(self, what, on=None, quiet=False):
        """Send each rank ``what(rank)``, a pair of function and arguments, without waiting.

        ``quiet``: nothing that ranks print meanwhile belongs to it.

        Returns:
            A list of ``Task``, for ``wait``.
        """
        return self._send(what, self.ready(on), quiet)

    def ask_aside(self, r, function, *args):
        """Ask an idle rank something that nobody must wait for: a Task, or None if it is busy."""
        if r in self.busy or self._members[r] not in processes.engines_of(self.client):
            return None
        return requests.send(self.client, r, self._members[r], (function, args), quiet=True)

    def _send(self, what, on, quiet=False):
        asked = [requests.send(self.client, r, self._members[r], what(r), quiet) for r in on]
        self._pending += asked
        return asked

    def wait(self, asked, on_progress=None):
        """Wait for requests; raise ``RanksError`` if some failed. See ``requests``."""
        try:
            stuck = requests.wait(asked, self.interrupt, on_progress)
            requests.raise_failures(asked, stuck)
        except KeyboardInterrupt:
            self._failed = True
            raise requests.interrupted(asked) from None
        except BaseException:
            self._failed = True
            raise

    def ready(self, on=None):
        """The ranks ``on`` (default: all), in a state to work; raises ClusterError if not."""
        on = range(self.n) if on is None else on
        self._check_there(on)
        # A cell may have caught the error itself: then it went well, but its group has ended.
        if self._failed or any(self._call_quietly(rank.ended, on)):
            everybody = range(self.n)
            self._check_there(everybody)
            self._failed = False
            try:
                self._call_quietly(rank.recover, everybody, uuid.uuid4().hex)
            except RanksError as error:
                why = str(error).splitlines()[0]
                raise ClusterError(
                    f"the ranks cannot meet anew; next: %ranks restart, Cluster.restart() ({why})"
                ) from None
        return on

    def _call_quietly(self, function, on, *args):
        """Call a function on ranks that are known to be ready; what it returned."""
        asked = self._send(lambda _: (function, args), on, quiet=True)
        self.wait(asked)
        return [task.value for task in asked]

    def _check_there(self, on):
        there = processes.engines_of(self.client)
        dead = [r for r in on if self._members[r] not in there]
        if dead:
            raise ClusterError(
                f"{ranks_label(dead)} ended; next: %ranks restart, Cluster.restart()"
            )
        busy = [r for r in self.busy if r in on]
        if busy:
            raise ClusterError(
                f"{ranks_label(busy)} still at work on something earlier; "
                "next: %ranks status, then interrupt or restart"
            )
