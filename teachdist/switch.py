"""Environment variables that are on or off."""

import os


def switch(name, default):
    """Whether variable `name` says 1 and not 0; `default` (a bool) where it is not set, or empty.

    Raises:
        ValueError: it says something else.
    """
    said = os.environ.get(name, "").strip()
    if said not in ("", "0", "1"):
        raise ValueError(f"{name}={said}: expected 1 (on) or 0 (off)")
    return said == "1" if said else default
