"""What a TCPStore server answers: one table, and a method for each request.

Nothing here knows sockets. The server's loop (server.py) calls `answer` with one whole request
after the other; what goes back is handed to `send(client, data)`. A request that has to wait is
answered later, when another client's request makes what it waits for.

    client A: WAIT /x   ->  nothing yet, noted in `waits`
    client B: SET /x 1  ->  into the table;  A gets its answer
"""

import json
import threading

from teachdist.stores.table import Table
from teachdist.stores.tcp_store import wire
from teachdist.stores.waits import Waits
from teachdist.stores.who import Process

_LATER = object()  # the result of a WAIT that is not over
KEPT_AT_MOST = 2 * wire.MAX_REQUEST  # bytes of answers that wait for one client


class Answers:
    """The table, who waits for what, and what each request does to both.

    send: called as send(client, data). A client has ``name`` and ``validated``, which are ours to
    set.
    """

    def __init__(self, send):
        self.table = Table()
        self.waits = Waits()
        self._send = send
        self._do = {op.code: getattr(self, f"_do_{op.name.lower()}") for op in wire.OPS}
        self._users = threading.Condition()  # notified when the counter of users grows

    def wait_for_users(self, count, seconds):
        """Wait until so many users have connected; the answer is how many have."""
        with self._users:
            self._users.wait_for(lambda: self._count_users() >= count, seconds)
            return self._count_users()

    def _count_users(self):
        return int(self.table.get(wire.USERS) or 0)

    def forget(self, client):
        """A client is gone: its waits, and the turn that it had at a queue."""
        self.waits.close(client)
        self.pass_on(client)

    # Who is done waiting gets its answer, now or when somebody makes the last key that it misses.

    def _made(self, key):
        """The key exists now: whoever misses nothing any more is done."""
        if key in self.waits.keys:
            self._release(self.waits.appeared(key))

    def _release(self, clients):
        for client in clients:
            self._send(client, bytes([wire.STOP_WAITING]))

    def pass_on(self, client):
        """A client that was woken for a queue, and does not pop, leaves its turn to the next."""
        key = self.waits.take_turn(client)
        if key in self.table.queues:
            self._release(self.waits.pushed(key))

    # The requests, one method each: what `answer` finds under the operation's name

    def answer(self, client, op, arguments):
        """Do what a client asks; what it gets for an answer goes to `send`."""
        if not client.validated:
            if op.name != "VALIDATE" or arguments != [wire.MAGIC]:
                raise wire.WireError("it does not begin with TCPStore's magic number")
            client.validated = True
            return
        if self.waits.has_turn(client) and op.name != "QUEUE_POP":
            self.pass_on(client)
        result = self._do[op.code](client, *arguments)
        if op.reply and result is not _LATER:
            self._send(client, wire.reply(op.reply, result))

    def _do_validate(self, client, magic):
        raise wire.WireError("it introduces itself twice")

    def _do_ping(self, client, nonce):
        return nonce

    def _do_set(self, client, key, value):
        if key == wire.INTRODUCTION:
            client.name = str(Process.from_dict(json.loads(value[:1000])))
            return
        self.table.set(key, value)
        self._made(key)

    def _do_multi_set(self, client, pairs):
        for key, value in pairs:
            self._do_set(client, key, value)

    def _do_append(self, client, key, value):
        self.table.append(key, value)
        self._made(key)

    def _do_compare_set(self, client, key, expected, desired):
        value = self.table.compare_set(key, expected, desired)
        if self.table.has(key):
            self._made(key)
        return value

    def _do_add(self, client, key, amount):
        count = self.table.add(key, amount)
        self._made(key)
        if key == wire.USERS:
            with self._users:
                self._users.notify_all()
        return count

    def _do_get(self, client, key):
        if key == wire.WAITING:
            return self._report()
        return self.table.get(key) or b""

    def _do_multi_get(self, client, keys):
        if sum(len(self.table.get(key) or b"") for key in keys) > KEPT_AT_MOST:
            raise wire.WireError("MULTI_GET of more than can be kept for one client")
        return [self._do_get(client, key) for key in keys]

    def _do_check(self, client, keys):
        there = all(key == wire.WAITING or self.table.has(key) for key in keys)
        return wire.READY if there else wire.NOT_READY

    def _do_wait(self, client, keys):
        missing = [key for key in keys if not self.table.has(key)]
        if not missing:
            return wire.STOP_WAITING
        self.waits.open(client, missing)
        return _LATER

    def _do_cancel_wait(self, client):
        self.waits.close(client)
        return wire.WAIT_CANCELED

    def _do_getnumkeys(self, client):
        return len(self.table.values)

    def _do_delete_key(self, client, key):
        return int(self.table.delete(key))

    def _do_list_keys(self, client):
        return list(self.table.values)

    def _do_queue_push(self, client, key, value):
        self.table.push(key, value)
        self._release(self.waits.pushed(key))

    def _do_queue_pop(self, client, key):
        self.waits.take_turn(client)
        return self.table.pop(key)

    def _do_queue_len(self, client, key):
        return self.table.length(key)

    def _do_barrier(self, client, key, size):
        if self.table.add(key, 1) < size:
            self.waits.open(client, [_barrier(key)])
            return _LATER
        self._release(self.waits.appeared(_barrier(key)))
        return wire.STOP_WAITING

    def _report(self):
        """Who waits for what, as JSON; a client asks for it to make its time-out's message."""
        rows = [
            {
                "who": client.name,
                "keys": [wire.plain(key) for key in keys[:20]],
                "seconds": round(seconds, 1),
            }
            for client, keys, seconds in self.waits.report()
        ]
        return json.dumps(rows).encode()


def _barrier(key):
    """The name under which one waits at a barrier: no WAIT for the counter itself may meet it."""
    return b"barrier " + key
