"""``%ranks`` and ``%%ranks``: the notebook's side of a cluster.

%ranks 4                          start four ranks; again: four new ones
%ranks 256 --rehearse "32 hosts x 8"   virtual ranks, and a predicted clock (rehearsed.py)
%ranks status | interrupt | restart | stop

%%ranks                           run the cell on every rank
%%ranks --on 0,2-3                on some
%%ranks --predict                 compare with "# predict rank 0: ..." lines (cells/predict.py)
%%ranks --trace                   draw the collectives that the cell called
%%ranks --here                    execute it in the notebook's own process too, before the ranks
%%ranks --as-script [FILE]        the cells so far, as a program for torchrun (cells/as_script.py)
"""

import argparse
import contextlib
import os
import shlex
from pathlib import Path

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_cell_magic, magics_class
from IPython.display import display

from teachdist.notebook.cells import as_script, complete, predict
from teachdist.notebook.cells.live import Live, bar
from teachdist.notebook.cells.outputs import parse_ranks, show
from teachdist.notebook.cluster import Cluster
from teachdist.notebook.engines import rank
from teachdist.notebook.errors import ClusterError, RanksError
from teachdist.notebook.rehearsed import RehearsedCluster
from teachdist.notebook.show import in_live_notebook
from teachdist.notebook.show import show as picture_of

SHARED = "TEACHDIST_CLUSTER"  # a running cluster's connection file: used instead of a new one
_USAGE = (
    "%ranks N [--backend NAME] [--launcher NAME] [--rehearse [TOPOLOGY]], or "
    "%ranks status | interrupt | restart | stop"
)


class _Parser(argparse.ArgumentParser):
    """An argparse that answers with one line instead of ending the process."""

    def error(self, message):
        raise UsageError(f"{self.prog}: {message}; usage: {self.usage}")


@magics_class
class RanksMagics(Magics):
    """The magics of ``%load_ext teachdist``."""

    def __init__(self, shell):
        super().__init__(shell)
        self.cluster = None
        self._cells = []  # (text, ranks or None) that ran without an error: for --as-script
        complete.install(shell, lambda: self.cluster)

    @line_cell_magic
    def ranks(self, line, cell=None):
        """``%ranks 4`` starts four ranks; a cell that begins with ``%%ranks`` runs on them.

        ``%ranks status`` says where each rank is, ``interrupt`` sends Ctrl-C, ``restart`` starts
        the processes anew, ``stop`` ends them. For cells: ``--on 0,2``, ``--predict``,
        ``--trace``, ``--here``, ``--as-script [FILE]``.
        """
        try:
            return self._command(line) if cell is None else self._cell(line, cell)
        except (ValueError, ClusterError) as error:
            raise UsageError(f"{'%ranks' if cell is None else '%%ranks'}: {error}") from None

    # %ranks

    def _command(self, line):
        words = _Parser("%ranks", usage=_USAGE, add_help=False)
        words.add_argument("what", nargs="?", default="status")
        words.add_argument("--backend", default="teachdist")
        words.add_argument("--launcher")
        words.add_argument("--profile")
        words.add_argument("--rehearse", nargs="?", const="", metavar="TOPOLOGY")
        given = words.parse_args(shlex.split(line, comments=True))
        controls = {
            "status": self._status,
            "interrupt": lambda: self._running().interrupt(),
            "restart": self._restart,
            "stop": self.stop,
        }
        if given.what in controls:
            controls[given.what]()
        else:
            self._start(_number(given.what), given)

    def _status(self):
        status = self._running().status()
        if in_live_notebook():
            display(picture_of(status))
        else:
            print(status)  # noqa: T201

    def _restart(self):
        cluster = self._running()
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
        words = _Parser(
            "%%ranks",
            usage="%%ranks [--on RANKS] [--predict] [--trace] [--here] [--as-script [FILE]]",
            add_help=False,
        )
        words.add_argument("--on")
        words.add_argument("--trace", action="store_true")
        words.add_argument("--here", action="store_true")
        words.add_argument("--predict", action="store_true")
        words.add_argument("--as-script", nargs="?", const="", metavar="FILE")
        given = words.parse_args(shlex.split(line, comments=True))
        cluster = self._running()
        some = None if given.on is None else _checked(parse_ranks(given.on), cluster.n)
        if given.as_script is not None:
            return self._write_script(given.as_script, [*self._cells, (cell, some)])
        on = range(cluster.n) if some is None else some
        predicted = predict.predictions(cell, on)
        if given.predict and not predicted:
            raise ValueError("--predict needs a comment line such as: # predict rank 0: 6")
        if given.here:
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
        live = Live()
        asked = cluster.execute(cell, on, self._number())
        said = {task.rank: task.items for task in asked}
        try:
            cluster.wait(asked, live.tasks)
        finally:
            live.end()
            show(said)
        return said

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


def _number(text):
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"expected {_USAGE}; got {text!r}") from None


def _checked(ranks, n):
    if beyond := [r for r in ranks if r >= n]:
        raise ValueError(f"--on: there is no rank {beyond[0]}, ranks are 0 to {n - 1}")
    return ranks
