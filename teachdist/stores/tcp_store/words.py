"""What a client of a TCPStore says when something goes wrong: who waits, and what to do."""

import json

from teachdist.stores.table import shorten
from teachdist.stores.tcp_store import wire
from teachdist.stores.who import me


def silent(connection, seconds, _error):
    """Whoever listens there takes connections and does not answer."""
    return (
        f"{me()}: connecting to the TCPStore server timed out after {seconds:.1f} s: something at "
        f"{connection} takes connections and says nothing. Is it another program, or is rank 0 "
        "stopped (Ctrl+Z, a debugger)?"
    )


def unreached(connection, seconds, error):
    """Nobody listens there, or whoever does hung up."""
    return (
        f"{me()}: no TCPStore server answers at {connection}, timed out after {seconds:.1f} s "
        f"({error}). Is rank 0 running, and did all ranks get its address and port?"
    )


def timed_out(connection, seconds, what, name, arguments):
    """A wait was in vain; the server is asked who else waits, if it is one of ours."""
    lines = [f"{me()}: {what} at {connection} timed out after {_short(seconds)} s."]
    if name == "WAIT":
        missing = [k for k in arguments[0] if connection.asked("CHECK", [k]) == wire.NOT_READY]
        lines.append(f"Nobody has set {_list(missing)}.")
    else:
        come = int(connection.asked("GET", *arguments[:1]) or 0)
        lines.append(f"{come} of {arguments[1]} have come to {_list(arguments[:1])}.")
    if connection.server_is_ours:
        rows = json.loads(connection.asked("GET", wire.WAITING))
        others = [f"{r['who']} for {', '.join(r['keys'])} ({r['seconds']} s)" for r in rows[:20]]
        lines.append("Others that wait there: " + ("; ".join(others) or "none") + ".")
    lines.append("Look at the rank that should have set it: did it fail, or never get there?")
    return " ".join(lines)


def lost(connection, error, name, arguments):
    """The connection broke during a request."""
    before = connection.under_way
    before = f" (under way: {request(*before)})" if before[0] != name else ""
    size = sum(len(a) for a in arguments if isinstance(a, bytes))
    hint = (
        f"its server takes values up to {wire.TORCH_MAX_VALUE >> 20} MiB only"
        if size > wire.TORCH_MAX_VALUE and not connection.server_is_ours
        else "did rank 0 end, or its server refuse this request?"
    )
    return (
        f"{me()}: lost the TCPStore server at {connection} during {request(name, arguments)}"
        f"{before}: {error or type(error).__name__}; {hint} "
        "The store object stays usable: its next call connects again."
    )


def request(name, arguments):
    """A request as one would call it."""

    def word(argument):
        if isinstance(argument, list):
            return _list([a if isinstance(a, bytes) else a[0] for a in argument])
        return shorten(argument) if isinstance(argument, bytes) else str(argument)

    return f"{name}({', '.join(word(a) for a in arguments)})"


def _short(seconds):
    return f"{seconds:.1f}" if seconds >= 1 else f"{seconds:.2g}"


def _list(keys):
    shown = ", ".join(repr(wire.plain(key)) for key in keys[:20])
    return shown + (f" and {len(keys) - 20} more" if len(keys) > 20 else "")
