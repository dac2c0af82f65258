"""Mail: messages from one rank to another, matched by sender and tag.

Collectives are rounds that all ranks enter together; point-to-point messages come when the
sender likes. So they have connections of their own, and a desk where they are matched (`desk.py`).

    send(x, 1) --> queue --> connection with 1 ~~~> connection with 0 --> desk --> recv(y, 0)

Whoever waits does the work: the caller of a blocking operation drives the connections itself,
which saves two changes of thread per message. One drives, others wait for it. Operations that
nobody waits for are driven by a lazy thread: it looks every `PATIENT` seconds while there is
traffic, hands over as soon as a caller comes, and sleeps when all is done.

Between ranks of one host the connections go through shared memory; see `stream.py`. Nothing here
knows the difference.
"""

import contextlib
import select
import threading
from collections import deque

from teachdist.links.desk import Arrived, Desk, misfit
from teachdist.links.errors import LinkError, PeerLost
from teachdist.links.header import GOODBYE, SIZE, Header
from teachdist.links.signals import spin
from teachdist.links.waiting import Patience
from teachdist.links.wire import BROKEN, broken

PATIENT = 0.005  # seconds that an operation waits for its caller before a thread takes it on
SMALL = 1 << 16  # bytes of a message that may be sent before it could be waited for
IDLE_LOOKS = 20  # looks without traffic after which the thread goes to sleep


class Mail:
    """The desk of one rank in one group."""

    def __init__(self, roster, sockets):
        self.roster = roster
        self.sockets = sockets
        # Everything below is touched only with the lock; who drives sleeps without it.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._driver = None  # "caller" or "thread", while one drives
        self._callers = 0
        self._watchers = 0  # who wait for the driver
        self._desk = Desk()
        self._unsent = {}  # peer -> messages that wait for a connection
        self._readers = {}
        self._filling = {}  # peer -> receive into which a message is being read
        self._moved = False  # whether the last look brought a message
        self._settled = self._desk.settled  # (letter, error), to be told without the lock
        self._poll = select.poll()
        self._polled = {}
        self._thread = None
        self._awake = False
        self._traffic = 0
        self._work = threading.Event()
        self._over = threading.Event()
        self._closed = False

    def send_at_once(self, peer, head, body):
        """Send a message if there is room for all of it now, without waiting; whether there was.

        head: header, words and length; body: the message's bytes.
        """
        channel = self.sockets.connections.get(peer)
        if channel is None or len(body) > SMALL:
            return False
        with self._lock:
            try:
                return not channel.queue and channel.put(head, body)
            except BROKEN:
                return False  # whoever reads or waits next will see

    def send(self, head, letter):
        """Post a send. Its buffer must stay as it is until the letter is done."""
        if letter.peer == self.roster.rank:
            header = Header.unpack(head[:SIZE])
            words = head[SIZE : SIZE + header.words].decode(errors="replace")
            with self._lock:
                self._desk.take(Arrived(letter.peer, header, words, bytes(letter.buffer)))
                self._settled.append((letter, None))
        else:
            head = memoryview(head)
            item = (letter, [head, letter.buffer] if len(letter.buffer) else [head])
            with self._lock:
                channel = self.sockets.connections.get(letter.peer)
                if channel is None:
                    self._unsent.setdefault(letter.peer, deque()).append(item)
                else:
                    channel.queue.append(item)
                    self._push(letter.peer, channel)
        self._tell()
        self._nudge(letter)

    def receive(self, letter):
        """Post a receive; bytes go into its buffer, the sender's rank into `source`."""
        with self._lock:
            self._desk.post(letter)
        if self._settled:
            self._tell()
        self._nudge(letter)

    def _nudge(self, letter):
        """Whoever drives, asleep, must look anew."""
        self._traffic += 1
        if not letter.done and self._driver is not None:
            self.sockets.ring()

    def wait(self, letter, patience):
        """Drive the connections, or wait for who does, until the letter is done.

        An operation whose wait ends early (time-out, Ctrl-C) is withdrawn.
        """
        if not letter.done:
            try:
                self._await(letter, patience, "caller")
            except BaseException as error:
                self._withdraw(letter, LinkError(f"withdrawn: {error}", letter.peer))
                raise
        if letter.error is not None:
            raise letter.error

    def _await(self, letter, patience, who):
        with self._lock:
            self._callers += who == "caller"
        try:
            while not letter.done:
                with self._lock:
                    mine = self._driver is None
                    if mine:
                        self._driver = who
                if mine:
                    self._drive(letter, patience, who)
                elif not self._watch_driver(letter, patience):
                    patience.over(self._awaited(letter))
        finally:
            with self._lock:
                self._callers -= who == "caller"

    def _watch_driver(self, letter, patience):
        """Wait until the driver has finished the letter or leaves the seat; False after a tick."""
        with self._lock:
            if self._driver == "thread":
                self.sockets.ring()  # it makes room for callers
            self._watchers += 1
            try:
                while self._driver is not None and not letter.done:
                    if not self._changed.wait(patience.tick()):
                        return False
            finally:
                self._watchers -= 1
        return True

    @property
    def attended(self):
        """Whether a thread looks after operations that nobody waits for."""
        return self._awake or self._closed

    def drive_in_background(self, watch, timeout):
        """Have the open operations driven by a thread, if nobody waits for them soon."""
        if self.attended:
            return
        self._awake = True
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._background, args=(watch, timeout), name="teachdist-mail", daemon=True
            )
            self._thread.start()
        self._work.set()

    def pending(self):
        """The operations that are not done."""
        with self._lock:
            return self._pending()

    def _pending(self):
        queues = [channel.queue for channel in self.sockets.connections.values()]
        queues += self._unsent.values()
        sends = [letter for queue in queues for letter, _ in queue if letter is not None]
        return [*sends, *self._desk.receives, *self._filling.values()]

    def close(self, flush=0.0):
        """Let sends go out for at most `flush` seconds, then end every open operation."""
        with contextlib.suppress(LinkError):
            patience = Patience(flush)
            for letter in [p for p in self.pending() if p.kind == "send"] if flush else []:
                self.wait(letter, patience)
        self._closed = True
        self._over.set()
        self._work.set()
        self.sockets.ring()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=5)
        with self._lock:
            for letter in self._pending():
                self._settled.append((letter, PeerLost("the group was shut down", letter.peer)))
            self._desk.receives.clear()
            self._filling.clear()
            self._readers.clear()
            self.sockets.close()
        self._tell()

    # -- driving ---------------------------------------------------------------------------

    def _background(self, watch, timeout):
        while not self._closed:
            self._work.wait()
            self._work.clear()
            quiet = 0
            while not self._closed and quiet < IDLE_LOOKS:
                # Most callers wait at once and drive by themselves: let them come first, or every
                # blocking send would pay for two threads.
                before = self._traffic
                if self._over.wait(PATIENT):
                    return
                waiting = self.pending()
                quiet = 0 if waiting or self._traffic != before else quiet + 1
                if not waiting or self._callers:
                    continue
                try:
                    self._await(waiting[0], Patience(timeout, watch), "thread")
                except LinkError as error:
                    self._withdraw(waiting[0], error)
            self._awake = False
            if self.pending():  # one came just now and relied on this thread
                self._awake = True
                self._work.set()

    def _drive(self, letter, patience, who):
        """Move what can be moved until `letter` is done (the thread: or until a caller comes)."""
        try:
            while not self._closed:
                with self._lock:
                    self._moved = False
                    self._progress(patience)
                self._tell()
                if letter.done or (who == "thread" and self._callers):
                    return
                if not self._moved and not self._stirs() and not self._sleep(patience):
                    patience.over(self._awaited(letter))
        finally:
            with self._lock:
                self._driver = None
                if self._watchers:
                    self._changed.notify_all()

    def _progress(self, patience):
        sources = {letter.peer for letter in self._desk.receives}
        if None in sources:
            sources = set(range(self.roster.size))
        connections = self.sockets.connections
        for peer in (sources | self._unsent.keys()) - connections.keys():
            if peer < self.roster.rank:
                self._connect(peer, patience)
        for peer in self._unsent.keys() & connections.keys():
            connections[peer].queue.extend(self._unsent.pop(peer))
        for peer, channel in list(connections.items()):
            if channel.queue:
                self._push(peer, channel)
            self._read(peer)

    def _connect(self, peer, patience):
        try:
            if self.roster.fetch(peer) is not None:
                self.sockets.connection(peer, patience)
        except LinkError as error:
            self._lost(peer, error)

    def _push(self, peer, channel):
        try:
            for letter in channel.flush():
                if letter is not None:
                    self._settled.append((letter, None))
        except BROKEN as error:
            self._lost(peer, broken(peer, error))

    def _read(self, peer):
        """Read until a message is complete or nothing more is there."""
        reader = self._readers.get(peer)
        if reader is None:
            reader = self._readers[peer] = self._reading(peer)
        try:
            self._moved = next(reader) or self._moved
        except BROKEN as error:
            self._lost(peer, broken(peer, error))

    def _reading(self, peer):
        """Take in messages from `peer` for ever.

        A generator that yields when there is nothing, and after each message: True, there may be
        more.
        """
        channel = self.sockets.connections[peer]
        while True:
            head = bytearray(SIZE)
            yield from channel.fill(memoryview(head))
            header = Header.unpack(head)
            if header.kind == GOODBYE:
                raise EOFError
            rest = bytearray(header.words + 8 * header.chunks)
            yield from channel.fill(memoryview(rest))
            words = rest[: header.words].decode(errors="replace")
            message = Arrived(peer, header, words, None)
            letter = self._desk.claim(message)
            wrong = None if letter is None else misfit(letter, message)
            if letter is not None and wrong is None:
                self._filling[peer] = letter
                yield from channel.fill(letter.buffer)
                del self._filling[peer]
                self._settled.append((letter, None))
                yield True
                continue
            if wrong is not None:
                self._settled.append((letter, wrong))
            message.data = bytearray(header.length)
            yield from channel.fill(memoryview(message.data))
            if wrong is None:
                self._desk.take(message)
            yield True

    def _stirs(self):
        """For a moment look, yielding, whether something comes by itself."""
        channels = list(self.sockets.connections.values())
        if not any(channel.can_stir for channel in channels):
            return False
        return spin(lambda: any(channel.stirred() for channel in channels))

    def _sleep(self, patience):
        """Block until a connection or the bell rings; False if nothing did within a tick."""
        channels = list(self.sockets.connections.values())
        bell = self.sockets.bell.fileno()
        watched = {bell: select.POLLIN} | {ch.fileno(): ch.events for ch in channels}
        for fd in self._polled.keys() - watched.keys():
            self._poll.unregister(fd)
        for fd in [fd for fd, events in watched.items() if self._polled.get(fd) != events]:
            self._poll.register(fd, watched[fd])
        self._polled = watched
        awake = [channel for channel in channels if not channel.drowse()]
        if not (awake or any(channel.can_stir for channel in channels)):
            spin(lambda: self._poll.poll(0))
        ready = self._poll.poll(0 if awake else patience.tick() * 1000)
        ready = {fd for fd, _ in ready}
        for channel in channels:
            channel.woken(channel.fileno() in ready)
        if bell in ready:
            with self._lock:
                self.sockets.adopt()
        return bool(ready or awake)

    # -- ends ------------------------------------------------------------------------------

    def _lost(self, peer, error):
        """The connection with `peer` is gone: fail what depends on it, keep the rest."""
        channel = self.sockets.connections.pop(peer, None)
        self._readers.pop(peer, None)
        doomed = [letter for letter, _ in self._unsent.pop(peer, ())]
        if channel is not None:
            doomed += [letter for letter, _ in channel.queue if letter is not None]
            channel.close()
        if peer in self._filling:
            doomed.append(self._filling.pop(peer))
        doomed += [letter for letter in self._desk.receives if letter.peer == peer]
        self._desk.receives = [letter for letter in self._desk.receives if letter.peer != peer]
        self._settled += [(letter, error) for letter in doomed]

    def _withdraw(self, letter, error):
        """End an operation that nobody waits for any more."""
        with self._lock:
            if letter in self._desk.receives:
                self._desk.receives.remove(letter)
            for peer, channel in self.sockets.connections.items():
                begun = self._filling.get(peer) is letter
                for item in [item for item in channel.queue if item[0] is letter]:
                    begun = item is channel.queue[0] and item[1][-1] is not letter.buffer
                    channel.queue.remove(item)
                if begun:
                    # Half a message: nothing sensible can follow on this connection.
                    channel.cut()
            if not letter.done:
                self._settled.append((letter, error))
        self._tell()

    def _tell(self):
        """Tell those who asked that their operations are over."""
        while self._settled:
            with self._lock:
                settled = list(self._settled)
                self._settled.clear()
            for letter, error in settled:
                if not letter.done:
                    letter.finish(error)
            if self._watchers:
                with self._lock:
                    self._changed.notify_all()

    def _awaited(self, letter):
        if letter.peer is not None:
            return [letter.peer]
        return [r for r in range(self.roster.size) if r != self.roster.rank]
