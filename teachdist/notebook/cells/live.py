"""What is seen while ranks work: their output so far, replaced by the final one at the end.

Only in a notebook, and not where output is recorded to be compared (``TEACHDIST_LIVE=0``): the
last thing that a cell shows must not depend on how long it took.
"""

import time

from teachdist.environment import switch
from teachdist.notebook.cells.outputs import collapse, errors_of, parts
from teachdist.words import ranks_label

FIRST_AFTER = 0.5  # seconds: a quick cell shows nothing but its final output
EVERY = 0.3
WHY_AFTER = 1.0  # seconds, as for the hint that a waiting rank logs: then it is asked why
WHY_EVERY = 2.0
LINES = 12  # of each rank: its last ones
_ENOUGH = 2_000  # characters for these lines


def in_notebook():
    """Whether a front end shows what is printed, and not a terminal or a file."""
    from IPython import get_ipython

    return getattr(get_ipython(), "kernel", None) is not None


def is_live():
    """Whether somebody is looking."""
    return in_notebook() and switch("TEACHDIST_LIVE", True)


class Live:
    """A picture that is redrawn, in the place of the cell's output."""

    def __init__(self, enabled=None, inquire=None):
        """``inquire`` asks for the ranks' status (``Cluster.inquire``), to say why they wait."""
        self.enabled = is_live() if enabled is None else enabled
        self._next = time.monotonic() + FIRST_AFTER
        self._shown = None
        self._inquire = inquire
        self._inquiry = None
        self._ask_at = time.monotonic() + WHY_AFTER
        self._why = ""

    def show(self, text):
        """Show ``text`` in place of what was shown before, unless it was just now."""
        if not self.enabled or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + EVERY
        if text != self._shown:
            self._clear()
            print(text, flush=True)  # noqa: T201
            self._shown = text

    def tasks(self, asked):
        """Show what ranks have said so far, and who is still at work."""
        if self.enabled and time.monotonic() >= self._next:
            self.show(so_far(asked, self._verdict(asked)))

    def _verdict(self, asked):
        """Who waits for whom, as last heard; asks again now and then, and never waits."""
        if self._inquiry is not None:
            if self._inquiry.done:
                self._why = why(self._inquiry.answer())
                self._inquiry, self._ask_at = None, time.monotonic() + WHY_EVERY
        elif self._inquire is not None and time.monotonic() >= self._ask_at:
            self._inquiry = self._inquire()
        return self._why if any(not task.done for task in asked) else ""

    def end(self):
        """Take it away; what is shown next replaces it."""
        if self._shown is not None:
            self._clear()
            self._shown = None

    def _clear(self):
        from IPython.display import clear_output

        clear_output(wait=True)


def why(status):
    """What a ``Status`` says of ranks that wait for others: their lines and the verdict, or ""."""
    return str(status) if status.verdict else ""


def so_far(asked, verdict=""):
    """Text for tasks that are under way; ``verdict``: why they wait."""
    said = collapse({task.rank: _tail(task.items) for task in asked})
    working = [task.rank for task in asked if not task.done]
    note = f"{ranks_label(working)} at work ..." if working else ""
    return "\n".join(text for text in (said, note, verdict) if text)


def _tail(items):
    """The last lines that a rank has said. Much may have come before: only the end is looked at."""
    last, size = [], 0
    for kind, content in reversed(items):
        if size > _ENOUGH:
            break
        if kind in ("stdout", "stderr"):
            content = content[-_ENOUGH:]
            size += len(content)
        last.insert(0, (kind, content))
    texts = [part[1] for part in parts(last) if part[0] == "text"]
    lines = ("".join(texts) + errors_of(last)).splitlines()
    return "\n".join(lines[-LINES:])[-_ENOUGH:]


def bar(done, total, width=20):
    """A progress bar of text: ``[#####.....] 2 of 4``."""
    full = width * done // total
    return f"[{'#' * full}{'.' * (width - full)}] {done} of {total}"
