"""One request per rank, and waiting for all of them.

Waiting for ranks is where a notebook usually hangs: one rank failed, the others wait for it in a
collective, and the kernel waits for the others. So the wait here has rules:

- it looks at every rank, in whatever order they answer, and is interrupted by Ctrl-C at once;
- when a rank has failed, the others get ``GRACE`` seconds to finish or to fail by themselves
  (a released collective raises within a second); then they are interrupted;
- a rank that does not react to the interrupt within ``PATIENCE`` seconds (it is inside C++) is
  reported as stuck, and the wait ends all the same.
"""

import concurrent.futures
import time

from teachdist.notebook import errors
from teachdist.notebook.cells.outputs import merged
from teachdist.notebook.errors import Failure, RanksError

GRACE = 2.0
PATIENCE = 4.0
_AGAIN_AFTER = 1.5  # a rank that goes on is interrupted again after this
_LOOK_EVERY = 0.1
_OUTPUT_DEADLINE = 2.0  # the reply may overtake the last output


class Task:
    """What one rank was asked, and everything that it has said so far.

    A ``quiet`` one is a request of ours: what the rank prints meanwhile comes from elsewhere, a
    thread that an earlier cell has started (see ``listening.py``).
    """

    def __init__(self, rank, quiet=False):
        self.rank = rank
        self.quiet = quiet
        self.future = None
        self._said = []  # as it arrived, in pieces
        self.failed_at = ""
        self.begun = False

    def begin(self, future):
        """``future`` is about to be sent: hear what arrives for it."""
        self.future = future
        future.task = self
        future.iopub_callbacks.append(self.hear)

    @property
    def items(self):
        """What the rank has said, in order.

        A list of ``("stdout", text)``, ``("stderr", text)``, ``("display", content)``,
        ``("result", content)``.
        """
        return merged(list(self._said))

    def hear(self, message):
        """Take in a message about the request."""
        kind, content = message["header"]["msg_type"], message["content"]
        if kind == "stream":
            self._said.append((content["name"], content["text"]))
        elif kind == "display_data":
            self._said.append(("display", content))
        elif kind == "update_display_data":
            self._update(content)
        elif kind == "execute_result":
            self._said.append(("result", content))
        elif kind == "clear_output":
            self._said.clear()
        elif kind == "error":
            self.failed_at = str(message["header"]["date"])
        elif kind == "status":
            self.begun = True

    def _update(self, content):
        wanted = content["transient"]["display_id"]
        for index, (kind, shown) in enumerate(self._said):
            if kind == "display" and shown.get("transient", {}).get("display_id") == wanted:
                self._said[index] = (kind, content)

    @property
    def done(self):
        """Whether the rank has answered."""
        return self.future.done()

    @property
    def failure(self):
        """A ``Failure`` if the rank answered with an error, else None."""
        answer = self.future.result() if self.done else None
        if isinstance(answer, Exception):
            return Failure.of(self.rank, answer, self.failed_at)
        return None

    @property
    def value(self):
        """What the function returned on this rank."""
        return self.future.result()

    def wait_for_output(self):
        """Wait a moment for output that the reply overtook."""
        concurrent.futures.wait([self.future.output], timeout=_OUTPUT_DEADLINE)


def send(client, rank, uuid, what, quiet=False):
    """Send rank ``rank``, the engine ``uuid``, a cell's text or ``(function, args)``; a Task."""
    task = Task(rank, quiet)
    where = {"ident": uuid.encode(), "message_future_hook": task.begin}
    if isinstance(what, str):
        client.send_execute_request(client._mux_stream, what, silent=False, **where)
    else:
        function, args = what
        client.send_apply_request(client._mux_stream, function, list(args), **where)
    return task


def wait(tasks, interrupt, on_progress=None):
    """Wait for every task by the rules above.

    Args:
        tasks: list of Task.
        interrupt: called with a list of ranks; sends them SIGINT.
        on_progress: called ten times a second while ranks work.

    Returns:
        Ranks that did not answer, not even to an interrupt: a list, usually empty.

    Raises:
        KeyboardInterrupt: after the ranks were interrupted too.
    """
    try:
        stuck = _wait(tasks, interrupt, on_progress)
    except KeyboardInterrupt:
        _interrupt(tasks, interrupt)
        _settle(tasks)
        raise
    _settle(tasks)
    return stuck


def _wait(tasks, interrupt, on_progress):
    failed_at = None
    while pending := [task.future for task in tasks if not task.done]:
        concurrent.futures.wait(
            pending, timeout=_LOOK_EVERY, return_when=concurrent.futures.FIRST_EXCEPTION
        )
        if on_progress is not None:
            on_progress(tasks)
        if failed_at is None and any(task.failure for task in tasks):
            failed_at = time.monotonic()
        if failed_at is not None and time.monotonic() > failed_at + GRACE:
            return _interrupt(tasks, interrupt)
    return []


def _interrupt(tasks, interrupt):
    """Interrupt the ranks that still work; returns those that do not react.

    A rank that has not begun would not notice: it is interrupted when it begins. One that goes on
    is interrupted again, but not at once: it may be busy telling of the first interrupt.
    """
    began = time.monotonic()
    told = {}  # rank -> when
    while pending := [task for task in tasks if not task.done]:
        now = time.monotonic()
        if now > began + PATIENCE:
            break
        due = [t.rank for t in pending if t.begun and now > told.get(t.rank, 0) + _AGAIN_AFTER]
        if due:
            interrupt(due)
            told.update(dict.fromkeys(due, now))
        concurrent.futures.wait([task.future for task in pending], timeout=_LOOK_EVERY)
    return [task.rank for task in pending]


def _settle(tasks):
    for task in tasks:
        if task.done:
            task.wait_for_output()


def raise_failures(tasks, stuck=()):
    """Raise one ``RanksError`` if any rank failed or is stuck."""
    failures = [task.failure for task in tasks if task.failure]
    if failures or stuck:
        raise RanksError(failures, stuck)


def interrupted(tasks):
    """What to raise when the reader has interrupted the tasks: says where each rank was."""
    said = {}
    for task in tasks:
        failure = task.failure
        said[task.rank] = failure.what if failure else "done" if task.done else None
    return errors.interrupted(said)
