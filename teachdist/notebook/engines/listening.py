"""What ranks print, heard by us instead of by ipyparallel's client.

ipyparallel's client gathers a request's text in one string that it copies and searches at each
message, so the time grows with the square of what is printed; and it drops what arrives when the
request is over. A thread or a child process that a cell has started prints then.

So the messages of the streams come here first. Those of a cell under way go to its ``Task``, those
that belong to none are late; everything else goes on to the client, also what its own ``%px``
prints. The client has no hook for this: its receiver is replaced.
"""

import ipyparallel
from ipyparallel.client.client import unpack_message

_whole = ipyparallel.Client._dispatch_iopub.__wrapped__


class Late:
    """What came when its cell was over, until somebody takes it."""

    def __init__(self, client):
        self._heard = []
        listen(client, lambda *heard: self._heard.append(heard))

    def take(self, members):
        """``{rank: items}``, as ``Task.items``; ``members``: the ranks' uuids. Then it is empty."""
        heard, self._heard = self._heard, []
        by_rank = {}
        for engine, name, text in heard:
            if engine in members:
                by_rank.setdefault(members.index(engine), []).append((name, text))
        return by_rank


def listen(client, on_late):
    """Hear what ranks print.

    Args:
        client: of ipyparallel.
        on_late: called in the client's thread with (uuid of the engine, "stdout" or "stderr",
            text) for what no cell under way has printed.
    """

    @unpack_message
    def heard(client, message):
        if message["header"]["msg_type"] != "stream" or not _take(client, message, on_late):
            _whole(client, message)

    def replace():
        client._iopub_stream.on_recv(lambda frames: heard(client, frames), copy=False)

    client._io_loop.add_callback(replace)


def _take(client, message, on_late):
    """Whether a text is ours, or nobody's."""
    parent = message["parent_header"]
    if not parent or parent["session"] != client.session.session:
        return False  # of the engine's start, or of another notebook that uses the same ranks
    future = client._futures.get(parent["msg_id"])
    task = getattr(future, "task", None)
    if task is not None and not task.quiet:
        task.hear(message)
    elif task is not None or future is None:
        content = message["content"]
        on_late(message["header"]["session"], content["name"], content["text"])
    else:
        return False
    return True
