"""Stopping a learner's generator that neither yields nor ends.

The idea: a generator that yields for ever is easy to stop, one simply doesn't ask again. One that
runs in circles without a yield (`while True: pass`) never gives control back. Python can call a
function before each step of its machine (`sys.settrace`, with opcodes: a loop written on one line
never comes to a new line); here that function counts, and raises when the count says that no honest
round takes that long. It works in the browser's Python too, where there are neither threads nor
signals.

It can't stop a single call that never returns, such as `time.sleep(10**9)`. Under a debugger or a
coverage tool, which need `sys.settrace` for themselves, nothing is counted.
"""

import sys

STEPS_PER_ROUND = 3_000_000


class Runaway(BaseException):
    """Raised inside the generator; not an Exception, so that a learner's `except` lets it pass."""


def guarded(function, *args, **kwargs):
    """`function(*args, **kwargs)`; raises Runaway after STEPS_PER_ROUND opcodes."""
    if sys.gettrace() is not None:
        return function(*args, **kwargs)
    left = STEPS_PER_ROUND

    def count(frame, event, argument):
        nonlocal left
        frame.f_trace_opcodes = True
        left -= 1
        if left < 0:
            raise Runaway(f"{STEPS_PER_ROUND:,} steps of Python")
        return count

    sys.settrace(count)
    try:
        return function(*args, **kwargs)
    finally:
        sys.settrace(None)
