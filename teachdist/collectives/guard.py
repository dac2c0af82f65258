"""Stopping a learner's generator that neither yields nor ends.

The idea: a generator that yields for ever is easy to stop, one simply doesn't ask again. One that
runs in circles without a yield (`while True: pass`) never gives control back. Python can call a
function before each line it executes, `sys.settrace`; here that function counts, and raises when
the count says that no honest round takes that long. It works in the browser's Python too, where
there are neither threads nor signals.

It can't stop a single call that never returns, such as `time.sleep(10**9)`. Under a debugger or a
coverage tool, which need `sys.settrace` for themselves, nothing is counted.
"""

import sys

LINES_PER_ROUND = 300_000


class Runaway(BaseException):
    """Raised inside the generator; not an Exception, so that a learner's `except` lets it pass."""


def guarded(function, *args, **kwargs):
    """`function(*args, **kwargs)`; raises Runaway after LINES_PER_ROUND lines of Python."""
    if sys.gettrace() is not None:
        return function(*args, **kwargs)
    left = LINES_PER_ROUND

    def count(frame, event, argument):
        nonlocal left
        left -= 1
        if left < 0:
            raise Runaway
        return count

    sys.settrace(count)
    try:
        return function(*args, **kwargs)
    finally:
        sys.settrace(None)
