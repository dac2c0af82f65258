"""In which line of the program does a rank spend its time? Looked at every few milliseconds.

A trace knows when a rank calls something, not what it does between. So a thread looks at where the
main thread stands, a hundred times a second, and keeps the line of the user's code: statistics
instead of a stopwatch at each line, as in py-spy and Austin. A look takes some 20 us, so this costs
less than half a percent of one processor.
"""

import threading
import time

from teachdist.diagnose.call_site import IDLE, main_thread

PERIOD = 0.01  # seconds between two looks


class Lines:
    """Looks at the main thread until `stop`. seen: [(when, line)], of time.monotonic()."""

    def __init__(self):
        self.seen = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="teachdist-lines", daemon=True)
        self._thread.start()

    def _look(self):
        while not self._over.wait(PERIOD):
            line = main_thread()
            if line != IDLE:
                self.seen.append((time.monotonic(), line))

    def stop(self):
        """Look no more."""
        self._over.set()
        self._thread.join()
