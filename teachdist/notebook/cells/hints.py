"""A line for the errors of somebody who ran a cell on the wrong side: here, or on the ranks."""

import re

_NOT_DEFINED = re.compile(r"name '(\w+)' is not defined")
_OF_RANKS = ("rank", "world_size", "dist")  # what a cell for ranks begins with


def hint_here(error, running, on_ranks):
    """For an error in the notebook's own process, or "".

    Args:
        error: what the cell raised.
        running: whether there are ranks.
        on_ranks: tells whether they know a name.
    """
    start = "" if running else "start ranks with %ranks 4, and "
    if isinstance(error, NameError):
        found = _NOT_DEFINED.search(str(error))
        if found and (found[1] in _OF_RANKS or (running and on_ranks(found[1]))):
            return f"hint: {found[1]!r} is known on the ranks; {start}begin the cell with %%ranks"
    if isinstance(error, ValueError) and "call init_process_group" in str(error):
        return (
            "hint: the notebook's own process is in no process group, the ranks are; "
            f"{start}begin the cell with %%ranks"
        )
    return ""


def hint_on_ranks(failures, here):
    """For ranks that don't know a name which the notebook knows, or "".

    Args:
        failures: list of ``Failure``.
        here: the names that the notebook has defined.
    """
    for failure in failures:
        found = _NOT_DEFINED.search(failure.text) if failure.name == "NameError" else None
        if found and found[1] in here:
            return (
                f"hint: {found[1]!r} is defined in the notebook's own process, and not on the "
                "ranks; begin the cell that defines it with %%ranks --here to have it on both"
            )
    return ""
