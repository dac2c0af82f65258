"""``RehearsedCluster``: ranks for ``%%ranks`` that are threads of the kernel, hundreds if need be.

    %ranks 256 --rehearse "32 hosts x 8"

It answers to what the magics ask of a ``Cluster``. A cell runs on virtual ranks (see
``teachdist.rehearse``): each has a namespace of its own, which stays from cell to cell, as do its
groups, its random numbers and its clock. What the kernel itself defined is not seen by them.
"""

import ast
import io
import sys
import traceback
import types

from teachdist.notebook.cells.live import in_notebook
from teachdist.notebook.cells.outputs import show, whole
from teachdist.notebook.cells.status import RankStatus, Status
from teachdist.notebook.engines import rank as vocabulary
from teachdist.notebook.engines import shell as shells
from teachdist.notebook.engines import tracebacks
from teachdist.notebook.engines.requests import raise_failures
from teachdist.notebook.errors import ClusterError, Failure

MOST_RANKS = 4096


class RehearsedTask:
    """One request to one rank, and what it has said; see ``tasks.Task``."""

    def __init__(self, rank, job):
        self.rank, self.job = rank, job
        self.items = []
        self.value, self.failure = None, None
        self.begun = self.done = False

    def text(self, name, text):
        """The rank has printed."""
        if self.items and self.items[-1][0] == name:
            text = self.items.pop()[1] + text
        self.items.append((name, text))


class _Stream(io.TextIOBase):
    def __init__(self, task, name):
        super().__init__()
        self._task, self._name = task, name

    def writable(self):
        return True

    def write(self, text):
        self._task.text(self._name, text)
        return len(text)


class RehearsedCluster:
    """``n`` virtual ranks with the methods of a ``Cluster``.

    Args:
        n: how many ranks.
        topology: the machine whose times are predicted; see ``teachdist.rehearse``.
        backend: for ``init_process_group``.
        shell: IPython's, for the syntax of cells and the form of answers; None in a script.

    Raises:
        ValueError: an argument is wrong.
    """

    launcher = None
    inquire = None  # nobody can be asked while ranks run: they run in this process

    def __init__(self, n, topology=None, backend="teachdist", shell=None):
        if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= MOST_RANKS:
            raise ValueError(f"the number of ranks must be 1 to {MOST_RANKS}, got {n!r}")
        self.n, self.topology, self.backend = n, topology, backend
        self._shell = shell
        self._said = {}  # the last cell's, or call's: {rank: items}
        self._begin()

    def _begin(self):
        from teachdist.rehearse.run import begin, make_job

        self._job = make_job(self.n, self.topology)
        self._job.stays = True
        self._modules = []
        self._traces = {}
        for rank in range(self.n):
            module = types.ModuleType("__main__")
            module.__dict__.update(rank=rank, world_size=self.n)
            self._modules.append(module)
        self._each(lambda rank: lambda: begin(rank, self.backend))
        self._each(lambda rank: lambda: self._fill(rank))

    def _fill(self, rank):
        import torch
        import torch.distributed as dist

        import teachdist

        names = {"torch": torch, "dist": dist, "teachdist": teachdist}
        names |= {"exit": vocabulary.leave_cell, "quit": vocabulary.leave_cell}
        self._modules[rank.number].__dict__.update(names)
        self._given = set(self._modules[rank.number].__dict__)

    def __repr__(self):
        return f"<RehearsedCluster of {self.n} ranks, {self._job.machine.topology.name}>"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    # -- what runs ------------------------------------------------------------------------------

    def execute(self, cell, on=None, number=None):
        """Prepare a cell's text for the ranks ``on``: a list of tasks for ``wait``."""
        if self._shell is not None:
            cell = self._shell.transform_cell(cell)
        name = f"<cell {number}>"
        if self._shell is not None and number is not None:
            name = self._shell.compile.cache(cell, number)
        parts = _compiled(cell, name)
        return self._tasks(on, lambda rank, task: self._run_cell(rank, task, parts))

    def run(self, function, *args, **kwargs):
        """Call ``function(*args, **kwargs)`` on every rank: what it returned, a list by rank."""
        asked = self._tasks(None, lambda rank, task: self._call(task, function, args, kwargs))
        try:
            self.wait(asked)
        finally:
            self.show(asked, "all of it: print(cluster.output()), cluster being yours")
        return [task.value for task in asked]

    def show(self, asked, remedy):
        """Show what was said for ``asked``; ``remedy`` says how to see what is left out."""
        self._said = {task.rank: task.items for task in asked}
        show(self._said, remedy if in_notebook() else None)

    def show_late(self):
        """Nothing comes late: a cell is over when its ranks are."""

    def output(self):
        """What the last cell or call has printed, all of it, as one text."""
        return whole(self._said)

    def ready(self, on=None):
        """Raise if the ranks were stopped."""
        if self._job is None:
            raise ClusterError("these ranks were stopped; start others: %ranks N --rehearse")

    def push(self, **names):
        """Define names on every rank."""
        for module in self._modules:
            module.__dict__.update(names)

    def pull(self, name, on=None):
        """The value of a name, or of an expression, on each rank: a list by rank."""
        return self._each(lambda rank: lambda: self._evaluate(rank, name), on)

    def _evaluate(self, rank, name):
        return eval(name, self._modules[rank.number].__dict__)

    def ask(self, function, *args, on=None):
        """What the magics ask of ranks beside cells: a trace, and which names there are."""
        asked = {
            vocabulary.trace_begin: self._trace_begin,
            vocabulary.trace_end: self._trace_end,
            vocabulary.who: self._who,
        }
        answer = asked[function]
        return self._each(lambda rank: lambda: answer(rank, *args), on)

    def _trace_begin(self, rank):
        import teachdist

        recording = teachdist.trace()
        self._traces[rank.number] = recording, recording.__enter__()

    def _trace_end(self, rank):
        recording, record = self._traces.pop(rank.number)
        recording.__exit__(None, None, None)
        return record

    def _who(self, rank):
        names = self._modules[rank.number].__dict__.items()
        return {
            name: shells.described(value)
            for name, value in names
            if name not in self._given and not name.startswith("_")
        }

    def ask_aside(self, r, function, *args):
        """Nothing can be asked while others wait: None."""

    def _each(self, what, on=None):
        asked = self._tasks(on, lambda rank, task: self._call(task, what(rank), (), {}))
        self.wait(asked)
        return [task.value for task in asked]

    def _tasks(self, on, job):
        return [RehearsedTask(r, job) for r in (range(self.n) if on is None else on)]

    def wait(self, asked, on_progress=None):
        """Run what was prepared until all ranks are done; raise ``RanksError`` if some failed."""
        self.ready()
        by_rank = {task.rank: task for task in asked}
        job = self._job
        job.failures.recover()
        with job.playing(self._displaying(by_rank)):
            job.play(lambda rank: self._life(rank, by_rank[rank.number]), sorted(by_rank))
        for task in asked:
            task.done = True
        self._failures(asked)
        if on_progress is not None:
            on_progress(asked)
        raise_failures(asked)

    def _life(self, rank, task):
        task.begun = True
        sys.modules["__main__"] = self._modules[rank.number]
        sys.stdout, sys.stderr = _Stream(task, "stdout"), _Stream(task, "stderr")
        task.job(rank, task)

    def _call(self, task, function, args, kwargs):
        task.value = function(*args, **kwargs)

    def _run_cell(self, rank, task, parts):
        names = self._modules[rank.number].__dict__
        body, last = parts
        exec(body, names)
        value = eval(last, names) if last is not None else None
        if value is not None:
            names["_"] = value
            task.items.append(("result", {"data": self._form(value), "metadata": {}}))

    def _form(self, value):
        if self._shell is None:
            return {"text/plain": repr(value)}
        return self._shell.display_formatter.format(value)[0]

    def _displaying(self, by_rank):
        """What a rank displays belongs to its task."""

        def patch(patches, job):
            if self._shell is None:
                return

            def publishing(_):
                def publish(data, metadata=None, **more):
                    task = by_rank[job.scheduler.running.rank.number]
                    task.items.append(("display", {"data": data, "metadata": metadata or {}}))

                return publish

            patches.for_ranks(job.scheduler, self._shell.display_pub, "publish", publishing)

        return patch

    # -- failing and ending --------------------------------------------------------------------

    def _failures(self, asked):
        """Give the tasks of ranks that failed their `Failure`; equal ones share a traceback."""
        known, hidden = {}, tracebacks.directories()
        order = list(self._job.failures.words)
        for task in asked:
            error = self._job.ranks[task.rank].error
            if error is None:
                continue
            trace = tracebacks.own_frames(error.__traceback__, hidden)
            alike = type(error), str(error), trace and trace.tb_lineno
            if alike not in known:
                known[alike] = self._traceback(error, trace)
            when = f"{order.index(task.rank):06}" if task.rank in order else ""
            name = type(error).__name__
            task.failure = Failure(task.rank, name, str(error), known[alike], when)

    def _traceback(self, error, trace):
        kind = type(error)
        if self._shell is not None:
            return self._shell.InteractiveTB.structured_traceback(kind, error, trace)
        return "".join(traceback.format_exception(kind, error, trace)).splitlines()

    def status(self):
        """What each rank is doing: they are idle, at their own time."""
        self.ready()
        return Status(RankStatus(rank.number, "idle", "idle") for rank in self._job.ranks)

    def rehearsal(self):
        """The answer so far, with its summary and timeline: a ``Rehearsal``."""
        from teachdist.rehearse.answer import Rehearsal

        return Rehearsal(self._job)

    @property
    def busy(self):
        """No rank is at work while the kernel is not."""
        return []

    def interrupt(self, on=None):
        """Nothing to interrupt: ranks run only while the kernel waits, and hear its Ctrl-C."""

    def restart(self):
        """New ranks. What cells defined is gone."""
        self._begin()

    def stop(self):
        """End the ranks."""
        self._job = None


def _compiled(cell, name):
    """(code of the cell, code of its last expression or None), as IPython runs cells."""
    tree = ast.parse(cell, name)
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr) and not cell.rstrip().endswith(";"):
        last = compile(ast.Expression(tree.body.pop().value), name, "eval")
    return compile(tree, name, "exec"), last
