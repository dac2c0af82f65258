"""Look a moment longer before going to sleep.

To be woken costs 10 us on a busy machine and 50 us on an idle one, whose processors doze. An answer
from a process that is at work often comes sooner. So who waits for one yields and looks for a
moment, and sleeps only then: links (transport/signals.py, tcp.py) and stores
(tcp_store/connection.py, tcp_store/server.py).

Why the moment is short: a rank that computes in another thread needs the interpreter's lock, and
another rank may want the processor. A single yield that lasts long says so: then nobody here spins
for a while. The yield goes through ctypes because that frees the interpreter's lock.
"""

import ctypes
import os
import time

SPIN = 0.0002  # seconds
SLOW = 0.001  # a yield that lasts so long says that the machine is busy
PENANCE = 20  # for so many times what it lasted nobody yields, but sleeps at once,
LONGEST = 1.0  # but no longer than this (a stopped process has not been yielding all the time)

try:
    give_way = ctypes.CDLL(None).sched_yield
except (OSError, AttributeError):  # not a Unix
    give_way = os.getpid

_busy_until = 0.0


def spin(ready):
    """Yield and look for a moment: what ready() gave, should it come true, or else False."""
    global _busy_until
    now = time.monotonic()
    if now < _busy_until:
        return False
    until = now + SPIN
    while now < until:
        give_way()
        if found := ready():
            return found
        before, now = now, time.monotonic()
        if now - before > SLOW:
            _busy_until = now + min(LONGEST, PENANCE * (now - before))
    return False
