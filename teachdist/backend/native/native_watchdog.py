"""Watching over calls that somebody else executes: gloo or NCCL, blocked in C++.

A call that this package executes looks around by itself while it waits. One that is handed to a
native backend waits where no Python runs. So one thread per process looks at the calls under
way, twice a second, and asks of each that has lasted what a waiting call would ask
(`diagnose/watchdog.py`): has a rank failed, is another rank in another call, has it died, is it
time to say who is missing?

What it costs: a call that goes well adds itself to a dictionary and removes itself. The thread is
never woken by a call; it looks by its own clock, and only at this process's own list, until a
call has lasted longer than `LASTING`. It ends when no group needs it.
"""

import os
import threading
import time

from teachdist.links.errors import LinkError

LASTING = 0.5  # seconds


class Overseen:
    """One call under way.

    watch: its `Watchdog`. late: called for the ranks of the group that have not come to the call.
    trouble: called with the `LinkError` when waiting has become pointless, once.
    """

    __slots__ = ("_late", "_trouble", "_watch", "began")

    def __init__(self, watch, late, trouble):
        self._watch, self._late, self._trouble = watch, late, trouble
        self.began = time.monotonic()

    def look(self):
        """Look around; whether there is still something to wait for."""
        try:
            self._watch(self._late(), time.monotonic() - self.began)
        except LinkError as error:
            self._trouble(error)
            return False
        return True


class Overseer:
    """The calls of this process that are under way elsewhere, and the thread that looks at them."""

    def __init__(self):
        self._calls = {}
        self._over = threading.Event()
        self._thread = None
        self._lock = threading.Lock()

    def add(self, call):
        """Watchdog over a call, until `remove` is called with what this returns."""
        self._calls[id(call)] = call
        if self._thread is None:
            self._start()
        return id(call)

    def remove(self, token):
        """The call is over."""
        self._calls.pop(token, None)

    def stop(self):
        """End the thread; a later call starts another."""
        with self._lock:
            thread, self._thread = self._thread, None
            self._over.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=5)

    def _start(self):
        with self._lock:
            if self._thread is None:
                self._over = threading.Event()
                self._thread = threading.Thread(
                    target=self._run, args=(self._over,), name="teachdist-overseer", daemon=True
                )
                self._thread.start()

    def _run(self, over):
        while not over.wait(LASTING):
            now = time.monotonic()
            for token, call in list(self._calls.items()):
                if now - call.began > LASTING and not call.look():
                    self._calls.pop(token, None)


overseer = Overseer()
os.register_at_fork(after_in_child=overseer.__init__)
