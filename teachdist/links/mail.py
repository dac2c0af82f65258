"""Mail: messages from one rank to another, matched by sender and tag.

Collectives are rounds that all ranks enter together; point-to-point messages come when the
sender likes. So they have connections of their own, and a desk where both sides are sorted:

    posted receives  (source or any, tag) ---+
                                             +--> the first that fit each other, in order
    messages arrived (source, tag)       ----+

A message that nobody has asked for yet waits in memory ("unexpected" in MPI's terms). That is
what lets two ranks send to each other at once, with messages larger than any buffer of the
system: while a rank waits for its own send to go out it keeps taking in what comes.

Whoever waits does the work: the caller of a blocking operation drives the connections itself,
which saves two changes of thread per message. Operations that nobody waits for are driven by
one lazy thread (`drive_in_background`), which sleeps while there are none.
"""

import contextlib
import select
import threading
from collections import deque

from teachdist.links.errors import LinkError, Mismatch, PeerLost
from teachdist.links.header import GOODBYE, POINT_TO_POINT, SIZE, Header
from teachdist.links.waiting import Patience
from teachdist.links.wire import guarded, send_some

PATIENT = 0.005  # seconds that an operation waits for its caller before a thread takes it on


class Letter:
    """One operation: a send on its way or a receive that waits; `done` once it is over."""

    def __init__(self, peer, tag, buffer, kind, on_done=None, fits=None):
        self.peer = peer  # None: receive from anybody
        self.tag = tag
        self.buffer = buffer
        self.kind = kind  # "send" or "recv"
        self.source = None
        self.error = None
        self.done = False
        self.fits = fits  # the fingerprint that the other side must have
        self._on_done = on_done

    def finish(self, error=None):
        """Settle the operation; tells who asked to be told."""
        self.error = error
        self.done = True
        if self._on_done is not None:
            self._on_done(self)


class Arrived:
    """A message in memory, or on its way into it."""

    def __init__(self, source, header, words, data):
        self.source, self.header, self.words, self.data = source, header, words, data


class Mail:
    """The desk of one rank in one group."""

    def __init__(self, roster, sockets):
        self.roster = roster
        self.sockets = sockets
        self._lock = threading.RLock()  # whoever holds it drives
        self._settled = threading.Condition()
        self._receives = []
        self._arrived = []
        self._outgoing = {}
        self._readers = {}
        self._thread = None
        self._work = threading.Event()
        self._over = threading.Event()
        self._closed = False

    def send(self, header, words, letter):
        """Post a send. Its buffer must stay as it is until the letter is done."""
        head = header.sized(len(words), 1, len(letter.buffer))
        with self._settled:
            if letter.peer == self.roster.rank:
                data = bytes(letter.buffer)
                self._arrived.append(Arrived(letter.peer, head, words.decode(), data))
            else:
                parts = [memoryview(head.pack() + words), letter.buffer]
                queue = self._outgoing.setdefault(letter.peer, deque())
                queue.append((letter, [p for p in parts if len(p)]))
            over = self._match()
        if letter.peer == self.roster.rank:
            letter.finish()
        self._settle_all(over)
        self.sockets.ring()

    def receive(self, letter):
        """Post a receive; bytes go into its buffer, the sender's rank into `source`."""
        with self._settled:
            self._receives.append(letter)
            over = self._match()
        self._settle_all(over)
        self.sockets.ring()

    def wait(self, letter, patience):
        """Drive the connections, or wait for who does, until the letter is done.

        An operation whose wait ends early (time-out, Ctrl-C) is withdrawn.
        """
        try:
            self._await(letter, patience)
        except BaseException as error:
            self._fail(letter, LinkError(f"withdrawn: {error}", letter.peer))
            raise
        if letter.error is not None:
            raise letter.error

    def _await(self, letter, patience):
        while not letter.done:
            if self._lock.acquire(blocking=False):
                try:
                    self._drive(lambda: letter.done, patience, letter)
                finally:
                    self._lock.release()
                    with self._settled:
                        self._settled.notify_all()
            else:
                with self._settled:
                    if not letter.done and not self._settled.wait(patience.tick()):
                        patience.over(self._awaited(letter))

    def drive_in_background(self, watch, timeout):
        """Have the open operations driven by a thread."""
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._background, args=(watch, timeout), name="teachdist-mail", daemon=True
            )
            self._thread.start()
        self._work.set()

    def pending(self):
        """The operations that are not done."""
        with self._settled:
            sends = [letter for q in self._outgoing.values() for letter, _ in q]
            return sends + list(self._receives)

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
            for letter in self.pending():
                self._fail(letter, PeerLost("the group was shut down", letter.peer))
            self.sockets.close()

    # -- the driver ------------------------------------------------------------------------

    def _background(self, watch, timeout):
        while not self._closed:
            self._work.wait()
            # Most callers wait at once and drive by themselves: let them come first, or every
            # blocking send would pay for two threads.
            if self._over.wait(PATIENT):
                return
            self._work.clear()
            while not self._closed and (open_ones := self.pending()):
                patience = Patience(timeout, watch)
                try:
                    self.wait(open_ones[0], patience)
                except LinkError as error:
                    if not open_ones[0].done:
                        self._fail(open_ones[0], error)

    def _drive(self, until, patience, letter):
        while not until():
            self._progress(patience)
            if until():
                return
            if not self._poll(patience):
                patience.over(self._awaited(letter))
            self.sockets.adopt()

    def _progress(self, patience):
        with self._settled:
            sending = list(self._outgoing)
            sources = {r.peer for r in self._receives}
        if None in sources:
            sources = set(range(self.roster.size))
        for peer in (sources | set(sending)) - {self.roster.rank, None}:
            if peer < self.roster.rank and peer not in self.sockets.connections:
                self._connect(peer, patience)
        for peer in sending:
            if peer in self.sockets.connections:
                self._send(peer)
        for peer in list(self.sockets.connections):
            self._read(peer)

    def _connect(self, peer, patience):
        try:
            if self.roster.known(peer) is not None:
                self.sockets.connection(peer, patience)
        except LinkError as error:
            self._lost(peer, error)

    def _send(self, peer):
        queue = self._outgoing.get(peer)
        try:
            with guarded(peer):
                while queue and send_some(self.sockets.connections[peer].sock, queue[0][1]):
                    letter, _ = queue.popleft()
                    self._settle(letter)
        except LinkError as error:
            self._lost(peer, error)
        with self._settled:
            if not queue:
                self._outgoing.pop(peer, None)

    def _read(self, peer):
        reader = self._readers.setdefault(peer, self._reading(peer))
        try:
            with guarded(peer):
                next(reader)
        except LinkError as error:
            self._lost(peer, error)

    def _reading(self, peer):
        """Take in messages from `peer` for ever (a generator that yields when there is none)."""
        channel = self.sockets.connections[peer]
        while True:
            head = bytearray(SIZE)
            yield from channel.fill(memoryview(head))
            header = Header.unpack(head)
            if header.kind == GOODBYE:
                raise EOFError
            words = bytearray(header.words)
            yield from channel.fill(memoryview(words))
            message = Arrived(peer, header, words.decode(errors="replace"), None)
            letter = self._claim(message)
            wrong = None if letter is None else self._misfit(letter, message)
            if letter is not None and wrong is None:
                yield from channel.fill(letter.buffer)
                self._settle(letter)
                continue
            message.data = bytearray(header.length)
            yield from channel.fill(memoryview(message.data))
            if letter is not None:
                self._settle(letter, wrong)
                continue
            with self._settled:
                self._arrived.append(message)
                over = self._match()
            self._settle_all(over)

    def _claim(self, message):
        """The first posted receive for a message, taken off the list; None if there is none."""
        with self._settled:
            for i, letter in enumerate(self._receives):
                if letter.peer in (None, message.source) and letter.tag == message.header.tag:
                    letter.source = message.source
                    return self._receives.pop(i)
        return None

    def _misfit(self, letter, message):
        """What is wrong with a message for a receive that it matches, or None."""
        header = message.header
        same_length = header.length == len(letter.buffer)
        same_kind = letter.fits is None or header.fingerprint == letter.fits
        if header.kind == POINT_TO_POINT and same_length and same_kind:
            return None
        said = message.words or f"{header.length} bytes"
        return Mismatch(
            f"the message from rank {message.source} does not fit", message.source, said
        )

    def _match(self):
        """Give messages in memory to receives that want them: (letter, error) for each pair.

        Called with the lock whenever one of the two lists has grown, so that a message which
        comes later never overtakes one that waits. The pairs are settled without the lock.
        """
        over = []
        for message in list(self._arrived):
            letter = self._claim(message)
            if letter is not None:
                self._arrived.remove(message)
                wrong = self._misfit(letter, message)
                if wrong is None:
                    letter.buffer[:] = message.data
                over.append((letter, wrong))
        return over

    def _settle_all(self, over):
        for letter, error in over:
            self._settle(letter, error)

    def _poll(self, patience):
        poll = select.poll()
        poll.register(self.sockets.bell, select.POLLIN)
        for peer, sock in self.sockets.connections.items():
            poll.register(sock, select.POLLIN | select.POLLOUT * (peer in self._outgoing))
        return poll.poll(patience.tick() * 1000)

    def _lost(self, peer, error):
        """The connection with `peer` is gone: fail what depends on it, keep the rest."""
        sock = self.sockets.connections.pop(peer, None)
        self._readers.pop(peer, None)
        if sock is not None:
            sock.close()
        with self._settled:
            doomed = [letter for letter, _ in self._outgoing.pop(peer, ())]
            doomed += [r for r in self._receives if r.peer == peer]
        for letter in doomed:
            self._fail(letter, error)

    def _fail(self, letter, error):
        with self._settled:
            if letter in self._receives:
                self._receives.remove(letter)
            for peer, queue in self._outgoing.items():
                for item in [item for item in queue if item[0] is letter]:
                    begun = item is queue[0] and item[1][-1] is not letter.buffer
                    queue.remove(item)
                    if begun and peer in self.sockets.connections:
                        # Half a message is out: nothing sensible can follow on this connection.
                        self.sockets.connections[peer].cut()
        if not letter.done:
            self._settle(letter, error)

    def _settle(self, letter, error=None):
        letter.finish(error)
        with self._settled:
            self._settled.notify_all()

    def _awaited(self, letter):
        if letter.peer is not None:
            return [letter.peer]
        return [r for r in range(self.roster.size) if r != self.roster.rank]
