"""Environment variables: those that are on or off, and those that nobody reads."""

import difflib
import os

PREFIX = "TEACHDIST_"
# All that are read, but for those named after operations (TEACHDIST_ALL_REDUCE).
KNOWN = (
    "TEACHDIST_ALGORITHMS",
    "TEACHDIST_CLUSTER",
    "TEACHDIST_DELEGATE",
    "TEACHDIST_HOST",
    "TEACHDIST_JOB",
    "TEACHDIST_LIVE",
    "TEACHDIST_LOG",
    "TEACHDIST_POISON",
    "TEACHDIST_RULES",
    "TEACHDIST_SHM",
    "TEACHDIST_SOCKET_IFNAME",
    "TEACHDIST_STORES",
    "TEACHDIST_STORE_ALLOW",
    "TEACHDIST_STORE_BIND",
    "TEACHDIST_TOPOLOGY",
    "TEACHDIST_TRACE",
)


def switch(name, default):
    """Whether variable `name` says 1 and not 0; `default` (a bool) where it is not set, or empty.

    Raises:
        ValueError: it says something else.
    """
    said = os.environ.get(name, "").strip()
    if said not in ("", "0", "1"):
        raise ValueError(f"{name}={said}: expected 1 (on) or 0 (off)")
    return said == "1" if said else default


def unread(operations):
    """A line for each variable that looks like one of ours and is none.

    operations: the names of all collectives.
    """
    known = [name.removeprefix(PREFIX) for name in KNOWN] + [op.upper() for op in operations]
    lines = []
    for name in sorted(os.environ):
        rest = name.removeprefix(PREFIX)
        if rest != name and rest not in known:
            like = difflib.get_close_matches(rest, known, 1)
            meant = f"; did you mean {PREFIX}{like[0]}?" if like else ""
            lines.append(f"{name} is set, and nothing reads it{meant}")
    return lines
