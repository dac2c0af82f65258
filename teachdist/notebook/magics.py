"""``%ranks`` and ``%%ranks``: the notebook's side of a cluster.

%ranks 4                                start four ranks (again: other ones)
%ranks status | interrupt | restart | stop
%%ranks [--on 0,2]                      run the cell on every rank, or on some
"""

import argparse
import shlex

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_cell_magic, magics_class

from teachdist.notebook import outputs
from teachdist.notebook.cluster import Cluster
from teachdist.notebook.errors import ClusterError

_USAGE = "%ranks N [--backend NAME] [--launcher NAME] | status | interrupt | restart | stop"


class _Parser(argparse.ArgumentParser):
    """An argparse that answers with one line instead of ending the process."""

    def error(self, message):
        raise UsageError(f"{self.prog}: {message}")


@magics_class
class RanksMagics(Magics):
    """The magics of ``%load_ext teachdist``."""

    cluster = None

    @line_cell_magic
    def ranks(self, line, cell=None):
        """``%ranks 4`` starts ranks; ``%%ranks`` runs a cell on them."""
        if cell is not None:
            return self._run_cell(line, cell)
        return self._command(line)

    def _command(self, line):
        words = _Parser("%ranks", usage=_USAGE, add_help=False)
        words.add_argument("what", nargs="?", default="status")
        words.add_argument("--backend", default="teachdist")
        words.add_argument("--launcher")
        given = words.parse_args(shlex.split(line))
        try:
            if given.what in ("status", "interrupt", "restart", "stop"):
                return self._control(given.what)
            self._start(given)
        except (ValueError, ClusterError) as error:
            raise UsageError(f"%ranks: {error}") from None
        return None

    def _control(self, what):
        cluster = self._running()
        if what == "stop":
            self.cluster = None
        answer = getattr(cluster, what)()
        if what == "status":
            print(answer)  # noqa: T201
        if what == "restart":
            print(f"{cluster.n} ranks ready again")  # noqa: T201

    def _running(self):
        if self.cluster is None:
            raise UsageError("%ranks: no ranks are running; start some: %ranks 4")
        return self.cluster

    def _start(self, given):
        if not given.what.isdecimal():
            raise UsageError(f"%ranks: expected {_USAGE}; got {given.what!r}")
        old, self.cluster = self.cluster, None
        if old is not None:
            old.stop()
        n = int(given.what)
        self.cluster = Cluster(n, given.backend, launcher=given.launcher)
        print(f"{n} rank{'s' if n > 1 else ''} ready, backend {given.backend}")  # noqa: T201

    def _run_cell(self, line, cell):
        words = _Parser("%%ranks", add_help=False)
        words.add_argument("--on", default=None)
        given = words.parse_args(shlex.split(line))
        cluster = self._running()
        on = _which(given.on, cluster.n)
        asked = cluster.send(lambda _: cell, on)
        try:
            cluster.wait(asked)
        finally:
            outputs.show({task.rank: task.items for task in asked})


def _which(text, n):
    """``"0,2-3"`` -> [0, 2, 3]; None -> all."""
    if text is None:
        return list(range(n))
    ranks = set()
    for piece in text.split(","):
        first, _, last = piece.partition("-")
        if not first.isdecimal() or not (last or first).isdecimal():
            raise UsageError(f"%%ranks --on: expected ranks such as 0,2 or 1-3, got {text!r}")
        ranks.update(range(int(first), int(last or first) + 1))
    if beyond := [rank for rank in ranks if rank >= n]:
        raise UsageError(f"%%ranks --on: there is no rank {beyond[0]}, ranks are 0 to {n - 1}")
    return sorted(ranks)
