"""``%ranks`` and ``%%ranks``: the notebook's side of a cluster.

%ranks 4                          start four ranks; again: four new ones
%ranks 256 --rehearse "32 hosts x 8"   virtual ranks, and a predicted clock (rehearsed.py)
%ranks status | who | output | interrupt | restart | stop

%%ranks                           run the cell on every rank
%%ranks --on 0,2-3                on some
%%ranks --predict                 compare with "# predict rank 0: ..." lines (cells/predict.py)
%%ranks --trace                   draw the collectives that the cell called
%%ranks --here                    execute it in the notebook's own process too, before the ranks
%%ranks --as-script [FILE]        the cells so far, as a program for torchrun (cells/as_script.py)
"""

import contextlib
import os
import sys
from pathlib import Path

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_cell_magic, magics_class
from IPython.display import display

from teachdist.notebook import arguments
from teachdist.notebook.cells import as_script, complete, hints, predict, who
from teachdist.notebook.cells.live import Live, bar
from teachdist.notebook.cells.outputs import parse_ranks
from teachdist.notebook.cluster import Cluster
from teachdist.notebook.engines import processes, rank
from teachdist.notebook.errors import ClusterError, RanksError
from teachdist.notebook.rehearsed import RehearsedCluster
from teachdist.notebook.show import in_live_notebook
from teachdist.notebook.show import show as picture_of

SHARED = "TEACHDIST_CLUSTER"  # a running cluster's connection file: used instead of a new one


@magics_class
class RanksMagics(Magics):
    """The magics of ``%load_ext teachdist``."""

    def __init__(self, shell):
        super().__init__(shell)
        self.cluster = None
        self._cells = []  # (text, ranks or None) that ran without an error: for --as-script
        complete.install(shell, lambda: self.cluster)
        shell.events.register("post_run_cell", self._hint)

    @line_cell_magic
    def ranks(self, line, cell=None):
        """``%ranks 4`` starts four ranks; a cell that begins with ``%%ranks`` runs on them.

        ``%ranks --help`` and ``%%ranks --help`` (above a cell) say what else there is.
        """
        try:
            return self._command(line) if cell is None else self._cell(line, cell)
        except (ValueError, ClusterError) as error:
            raise UsageError(f"{'%ranks' if cell is None else '%%ranks'}: {error}") from None
        except arguments.Help as text:
            print(text)  # noqa: T201
            return None
        finally:  # not before: what is seen live would wipe it out
            if self.cluster is not None:
                self.cluster.show_late()

    # %ranks

    def _command(self, line):
        given = arguments.line_words(line)
        controls = {
            "status": self._status,
            "who": lambda: print(who.who_table(self._running().ask(rank.who))),  # noqa: T201
            "output": lambda: self._output(given.more),
            "interrupt": lambda: self._running().interrupt(),
            "restart": self._restart,
            "stop": self.stop,
        }
        if given.what in controls:
            controls[given.what]()
        else:
            self._start(given.what, given)

    def _output(self, name):
        text = self._running().output()
        if name is None:
            print(text)  # noqa: T201
        else:
            Path(name).write_text(text + "\n", encoding="utf-8")
            print(f"wrote {name}: {len(text):,} characters")  # noqa: T201

    def _status(self):
        status = self._running().status()
        if in_live_notebook():
            display(picture_of(status))
        else:
            print(status)  # noqa: T201

    def _restart(self):
        cluster = self._running()
        cluster.show_late()
        cluster.restart()
        self._cells = []
        self._ready()

    def stop(self):
        """End the ranks, if there are any."""
        cluster, self.cluster = self.cluster, None
        self._cells = []
        if cluster is not None:
            cluster.stop()

    def _start(self, n, given):
        if self._is_like(n, given):
            return self._restart()
        if self.cluster is not None:  # it must not go for what cannot be
            held = processes.memory_of(self.cluster.n)
            processes.check(n, given.backend, given.launcher, held)
        self.stop()
        live = Live()
        try:
            self.cluster = self._new(n, given, live)
        finally:
            live.end()
        if given.rehearse is None:
            self._activate_px()
        return self._ready()

    def _new(self, n, given, live):
        if given.rehearse is not None:
            return RehearsedCluster(n, given.rehearse or None, given.backend, self.shell)
        return _shared(n, given) or Cluster(
            n,
            given.backend,
            launcher=given.launcher,
            profile=given.profile,
            on_progress=lambda there: live.show(f"starting ranks {bar(there, n)}"),
        )

    def _is_like(self, n, given):
        """Whether new processes in the present cluster are what is asked for."""
        now = self.cluster
        return (
            isinstance(now, Cluster)
            and given.rehearse is None
            and (now.n, now.backend, now.launcher) == (n, given.backend, given.launcher)
            and given.profile is None
        )

    def _ready(self):
        n = self.cluster.n
        print(f"{n} rank{'s' if n > 1 else ''} ready, backend {self.cluster.backend}")  # noqa: T201

    def _activate_px(self):
        """Ipyparallel's own ``%px`` works on the same ranks."""
        view = self.cluster.client[list(range(self.cluster.n))]
        view.block = True
        view.activate()

    def _running(self):
        if self.cluster is None:
            raise ClusterError("no ranks are running; start some: %ranks 4")
        return self.cluster

    # %%ranks

    def _cell(self, line, cell):
        given = arguments.cell_words(line)
        cluster = self._running()
        some = None if given.on is None else _checked(parse_ranks(given.on), cluster.n)
        if given.as_script is not None:
            return self._write_script(given.as_script, [*self._cells, (cell, some)])
        on = range(cluster.n) if some is None else some
        predicted = predict.predictions(cell, on)
        if given.predict and not predicted:
            raise ValueError("--predict needs a comment line such as: # predict rank 0: 6")
        if given.here:
            cluster.ready(on)  # or it would be defined here, and not there
            self._execute_here(line, cell)
        with self._traced(cluster, on) if given.trace else contextlib.nullcontext():
            said = self._execute(cluster, line, cell, on)
        self._cells.append((cell, some))
        if given.predict:
            got = {r: predict.answer(items) for r, items in said.items()}
            print(predict.compare(predicted, got))  # noqa: T201
        return None

    def _execute_here(self, line, cell):
        """Run the cell in this process, for definitions that are needed on both sides."""
        cell = _numbered(line, cell)
        name = self.shell.compile.cache(cell, self._number())
        exec(compile(cell, name, "exec"), self.shell.user_ns)

    def _execute(self, cluster, line, cell, on):
        """Run the cell, show what ranks said, raise if one failed; ``{rank: items}``."""
        cell = _numbered(line, cell)
        live = Live(inquire=cluster.inquire)
        asked = cluster.execute(cell, on, self._number())
        try:
            cluster.wait(asked, live.tasks)
        except RanksError as error:
            self._hint_on_ranks(error)
            raise
        finally:
            live.end()
            cluster.show(asked, "all of it: %ranks output, or %ranks output FILE")
        return {task.rank: task.items for task in asked}

    def _hint_on_ranks(self, error):
        """Say on the error that a name which the ranks miss is known here."""
        names = {name for name in self.shell.user_ns if not name.startswith("_")}
        error.hint = hints.hint_on_ranks(error.failures, names)

    def _hint(self, result):
        """After a cell: whether it should have been one for the ranks."""
        error = result.error_in_exec if result is not None else None
        text = error is not None and hints.hint_here(error, self.cluster is not None, self._known)
        if text:
            print(text, file=sys.stderr)  # noqa: T201

    def _known(self, name):
        return complete.ask(self.cluster, rank.defines, name)

    def _number(self):
        """The number of the cell that is being executed.

        It is in the history already; `execution_count` is that of the next cell in newer IPythons.
        """
        return len(self.shell.history_manager.input_hist_parsed) - 1

    def _write_script(self, name, cells):
        cluster = self._running()
        text = as_script.as_script(cells, cluster.n, cluster.backend, name or "script.py")
        if name:
            Path(name).write_text(text)
            print(f"wrote {name}; run it: torchrun --nproc-per-node {cluster.n} {name}")  # noqa: T201
        else:
            print(text)  # noqa: T201

    @contextlib.contextmanager
    def _traced(self, cluster, on):
        """Record the collectives of the cell that runs inside, and draw them if it succeeds."""
        cluster.ask(rank.trace_begin, on=on)
        try:
            yield
        except BaseException:
            with contextlib.suppress(ClusterError, RanksError):
                cluster.ask(rank.trace_end, on=on)
            raise
        traces = cluster.ask(rank.trace_end, on=on)
        if any(trace.calls for trace in traces):
            from IPython.display import display

            from teachdist.notebook.show import show as draw

            display(draw(traces))
        else:
            print("no collective of backend teachdist was called")  # noqa: T201


def _numbered(line, cell):
    """The cell with lines numbered as in the notebook."""
    return cell if cell.lstrip().startswith("%%") else f"#%%ranks {line}\n{cell}"


def _shared(n, given):
    """The running cluster that the environment names, with new ranks; None without one."""
    file = os.environ.get(SHARED)
    if not file or given.launcher is not None or given.profile is not None:
        return None
    try:
        return Cluster.attach(file, n, backend=given.backend, fresh=True)
    except ClusterError:
        return None  # gone, or too small: a cluster of our own


def _checked(ranks, n):
    if beyond := [r for r in ranks if r >= n]:
        raise ValueError(f"--on: there is no rank {beyond[0]}, ranks are 0 to {n - 1}")
    return ranks
