"""What the notebook needs inside a rank: the functions here run in the engines.

The kernel sends a function by its module's name, so this module is the whole vocabulary between
kernel and rank. A rank joins the process group in two steps, since somebody must know the store's
address first: rank 0 opens the store (``host_store``), then everybody joins (``join``).

A rank that fails releases the others **before** it reports: the release must not wait for the
kernel, which may be waiting for the others. ``_cell_ends`` and ``call`` do that; before the next
cell all ranks ``recover``. Other backends than teachdist know neither.
"""

import datetime
import importlib
import os
import socket
import sys
import time

from teachdist.notebook.engines import asynchronous, debugger, forks, tracebacks, whereabouts
from teachdist.notebook.engines import shell as shells

_kept = {}  # what must live as long as the rank


def hello():
    """(host name, torch's version): who is there."""
    import torch

    return socket.gethostname(), torch.__version__


def host_store(address, port, timeout):
    """Open this rank's TCPStore on ``address`` and return its port (0: a free one).

    The socket is made here and handed to torch, because torch itself would listen on all
    interfaces.
    """
    import torch.distributed as dist

    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.bind((address, port))
        listener.listen()
        port = listener.getsockname()[1]
        _kept["hosted"] = dist.TCPStore(
            address,
            port,
            is_master=True,
            wait_for_workers=False,
            timeout=datetime.timedelta(seconds=timeout),
            master_listen_fd=listener.detach(),
        )
    finally:
        listener.close()
    return port


def join(rank, world_size, local_rank, backend, address, port, timeout):
    """Become ``rank`` of ``world_size``: make the process group, fill the namespace.

    ``local_rank`` is the number among the ranks of this host. As under torchrun the three are
    environment variables, too.

    The names ``torch``, ``dist``, ``teachdist``, ``rank`` and ``world_size`` are there for the
    cells.
    """
    import torch
    import torch.distributed as dist

    import teachdist

    if backend == "teachdist":
        importlib.import_module("teachdist.backend")  # registers itself
    if dist.is_initialized():
        dist.destroy_process_group()
    deadline = datetime.timedelta(seconds=timeout)
    store = dist.TCPStore(address, port, wait_for_workers=False, timeout=deadline)
    dist.init_process_group(
        backend, store=store, rank=rank, world_size=world_size, timeout=deadline
    )
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world_size), LOCAL_RANK=str(local_rank))
    # Short enough to read, and the same on every rank.
    torch.set_printoptions(threshold=100, linewidth=88)
    names = {"torch": torch, "dist": dist, "teachdist": teachdist}
    # IPython's own exit would end the process, and only at the end of the cell.
    names |= {"exit": leave_cell, "quit": leave_cell}
    names |= {"rank": rank, "world_size": world_size}
    push(names)
    _shell().user_ns_hidden.update(names)
    _listen()


def leave_cell(code=None):
    """`exit()` in a cell: it ends the cell, as it would end a script, and the rank stays."""
    raise SystemExit(code)


def push(names):
    """Define names for the cells."""
    _shell().user_ns.update(names)


def pull(name):
    """The value of a name, or of an expression, as a cell would see it."""
    return eval(name, _shell().user_ns)


def ended():
    """Whether a group of this rank has ended with an error and must meet anew."""
    backend = _backend()
    if backend is None:
        return False
    return any(
        communicator.broken and not communicator.deserted
        for communicator in backend.communicators()
    )


def recover(meeting):
    """After a failure, on all ranks: the groups are usable again. ``meeting``: a name, once."""
    backend = _backend()
    if backend is not None:
        backend.recover(meeting)


def number(count):
    """Number the next cell as the notebook does."""
    _shell().execution_count = count


def trace_begin():
    """Record the collectives of the next cells."""
    import teachdist

    recording = teachdist.trace()
    _kept["trace"] = recording, recording.__enter__()


def trace_end():
    """Stop recording; what was recorded."""
    recording, record = _kept.pop("trace")
    recording.__exit__(None, None, None)
    return record


def complete(line):
    """Completions at the end of ``line``, from the values that are there.

    Of an attribute, newer IPythons answer with the last part alone: ``.all_reduce``.
    """
    completer = _shell().Completer
    completer.use_jedi = False  # it analyses text instead, and takes seconds to start
    return completer.complete(line_buffer=line, cursor_pos=len(line))[1]


def inspect(code, cursor, detail):
    """What the kernel knows of the name at the cursor: the content of an inspect_reply."""
    found = _shell().kernel.do_inspect(code, cursor, detail)
    return {key: found[key] for key in ("data", "metadata", "found")}


def defines(name):
    """Whether cells see a name."""
    return name in _shell().user_ns


def who():
    """What cells have defined: {name: a few words about the value}."""
    shell = _shell()
    names = shells.users_names(shell, shell.user_ns)
    return {name: shells.described(value) for name, value in names.items()}


def call(function, args, kwargs):
    """Call a function; if it raises, release the others first."""
    _kept["busy_since"] = time.monotonic()
    try:
        value = function(*args, **kwargs)
    except BaseException as error:
        forks.end_child(error)
        _release(error)
        whereabouts.say_where(error, _shell())
        raise
    else:
        forks.end_child()
        return value
    finally:
        _kept["busy_since"] = None
        forks.hear_children()


def where():
    """What the main thread is doing: (seconds since the cell began, or None if idle; text).

    Runs in the control thread: it answers while a cell is blocked.
    """
    since = _kept.get("busy_since")
    if since is None:
        return None, "idle"
    return time.monotonic() - since, whereabouts.position(_shell())


def verdict():
    """What the backend's board says of ranks that wait, a sentence per group; "" if none does."""
    backend = _backend()
    if backend is None:
        return ""
    from teachdist.diagnose import roll
    from teachdist.diagnose import verdict as judge
    from teachdist.diagnose.snapshot import CALL

    sentences = []
    for communicator in backend.communicators():
        places = roll(communicator.view, ask_them=False)
        if any(place.state == CALL for place in places):
            sentences.append(judge.verdict(communicator.title, places))
    return "\n".join(sentences)


def _listen():
    """Hear of the beginning and the end of cells, and of questions for ``where``; once."""
    if _kept.setdefault("listening", False):
        return
    _kept["listening"] = True
    shell = _shell()
    asynchronous.install(shell.kernel)
    shell.events.register("pre_run_cell", _cell_begins)
    shell.events.register("post_run_cell", _cell_ends)
    forks.install()
    shells.install(shell)
    tracebacks.install(shell)
    sys.breakpointhook = debugger.scripted_breakpoint
    shell.kernel.control_handlers["teachdist_where_request"] = _answer_where


def _cell_begins(_info):
    _kept["busy_since"] = time.monotonic()


def _cell_ends(result):
    _kept["busy_since"] = None
    error = result and (result.error_before_exec or result.error_in_exec)
    forks.end_child(error)
    forks.hear_children()
    if error is not None:
        _release(error)
        whereabouts.say_where(error, _shell())


def _answer_where(stream, ident, parent):
    seconds, text = where()
    content = {"status": "ok", "pid": os.getpid(), "seconds": seconds, "text": text}
    if parent["content"]["verdict"]:
        content["verdict"] = _safe_verdict()
    _shell().kernel.session.send(
        stream, "teachdist_where_reply", content=content, parent=parent, ident=ident
    )


def _safe_verdict():
    """A rank that does not answer would be taken for a busy one, so a failure is an answer, too."""
    try:
        return verdict()
    except Exception as error:  # noqa: BLE001
        return f"no verdict: {type(error).__name__}: {error}"


def _release(error):
    backend = _backend()
    if backend is not None:
        backend.release(error)


def _backend():
    """Our backend, if this rank uses it."""
    return sys.modules.get("teachdist.backend")


def _shell():
    from IPython import get_ipython

    return get_ipython()
