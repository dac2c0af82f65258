"""What this package wants to reach: how many times as fast as gloo, by operation and size.

Set before the code was written, after measuring what a prototype in plain Python could do on one
host with two processors. They are no promise and no test: a busy machine misses them, a larger one
may pass them by far.
"""

KB, MB = 1 << 10, 1 << 20

# Sizes up to which the numbers hold, and the ratios, smallest size first.
SIZES = (64 * KB, MB, 16 * MB, 1 << 62)
SHARED_MEMORY = {
    "all_reduce": (4.5, 3.5, 2, 1.6),
    "broadcast": (5, 3, 2, 2.2),
    "all_gather": (3, 3, 2, 5),
    "reduce_scatter": (2.5, 3.5, 2.5, 3.5),
    "all_to_all": (3.5, 2, 1.2, 1.1),
    "p2p": (2.5, 2.5, 1.5, 1),
    "barrier": (6, 6, 6, 6),
    "overlap": (1.1, 1.1, 1.1, 1.1),
}
SOCKETS = 1


def target(op, nbytes, kind="shm"):
    """The ratio that is wanted for an operation on `nbytes` bytes; None if none was set.

    kind: "shm", or "tcp" for sockets alone.
    """
    if kind == "tcp":
        return SOCKETS
    wanted = SHARED_MEMORY.get(op)
    return wanted and next(
        ratio for most, ratio in zip(SIZES, wanted, strict=True) if nbytes <= most
    )
