"""Messages from one rank to another, matched by sender and tag.

Collectives are rounds that all ranks enter together; point-to-point messages come when the
sender likes. So they have connections of their own, queues where they are matched (`matching.py`),
and a progress engine between the two (`progress.py`).

    send(x, 1) --> queue --> connection with 1 ~~~> connection with 0 --> matching --> recv(y, 0)

Whoever waits does the work: the caller of a blocking operation drives the progress engine itself,
which saves two changes of thread per message. One drives, others wait for it. Operations that
nobody waits for are driven by a lazy thread: it looks every `PATIENT` seconds while there is
traffic, hands over as soon as a caller comes, and sleeps when all is done.

Between ranks of one host the connections go through shared memory; see `transport/ring_buffer.py`.
Nothing here knows the difference.
"""

import contextlib
import threading
import time

from teachdist.links.errors import LinkError, PeerLost
from teachdist.links.p2p.progress import Progress
from teachdist.links.waiting import Deadline

PATIENT = 0.005  # seconds that an operation waits for its caller before a thread takes it on
SMALL = 1 << 16  # bytes of a message that may be sent before it could be waited for
IDLE_LOOKS = 20  # looks without traffic after which the thread goes to sleep


class Messages:
    """The point-to-point operations of one rank in one group, and who drives them."""

    def __init__(self, peers, sockets):
        self.peers = peers
        self.sockets = sockets
        # Everything below is touched only with the lock; who drives sleeps without it.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._progress = Progress(peers, sockets, self._lock)
        self._settled = self._progress.settled  # to be told without the lock
        self._driver = None  # "caller" or "thread", while one drives
        self._callers = 0
        self._watchers = 0  # who wait for the driver
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
        if peer not in self.sockets.connections or len(body) > SMALL:
            return False
        with self._lock:
            return peer in self.sockets.connections and self._progress.put(peer, head, body)

    def send(self, head, request):
        """Post a send. Its buffer must stay as it is until the request is done."""
        with self._lock:
            self._progress.post(request, head)
        self._tell()
        self._nudge(request)

    def receive(self, request):
        """Post a receive; bytes go into its buffer, the sender's rank into `source`."""
        with self._lock:
            self._progress.matching.post(request)
        self._tell()
        self._nudge(request)

    def _nudge(self, request):
        """Whoever drives, asleep, must look anew."""
        self._traffic += 1
        if not request.done and self._driver is not None:
            self.sockets.ring()

    def look(self, request):
        """The shortest way for a receive: what is there, or comes while this rank looks for it."""
        if self._driver is None and self._progress.comes(request.peer):
            with self._lock:
                if self._driver is None and request.peer in self.sockets.connections:
                    self._progress.read(request.peer)
            self._tell()

    def wait(self, request, deadline):
        """Drive the progress engine, or wait for who does, until the request is done.

        An operation whose wait ends early (time-out, Ctrl-C) is withdrawn.
        """
        if not request.done:
            try:
                self._await(request, deadline, "caller")
            except BaseException as error:
                self._withdraw(request, LinkError(f"withdrawn: {error}", request.peer))
                raise
        if request.error is not None:
            raise request.error

    def _await(self, request, deadline, who):
        with self._lock:
            self._callers += who == "caller"
        try:
            while not request.done:
                if self._closed:  # whoever closes ends the operation
                    if who == "thread":
                        return
                    time.sleep(0.001)
                    continue
                with self._lock:
                    mine = self._driver is None
                    if mine:
                        self._driver = who
                if mine:
                    self._drive(request, deadline, who)
                elif not self._watch_driver(request, deadline):
                    deadline.over(self._awaited(request, who))
        finally:
            with self._lock:
                self._callers -= who == "caller"

    def _watch_driver(self, request, deadline):
        """Wait until the driver has finished the request or leaves the seat; False after a tick."""
        with self._lock:
            if self._driver == "thread":
                self.sockets.ring()  # it makes room for callers
            self._watchers += 1
            try:
                while self._driver is not None and not request.done:
                    if not self._changed.wait(deadline.tick()):
                        return False
            finally:
                self._watchers -= 1
        return True

    def _drive(self, request, deadline, who):
        """Move what can be moved until `request` is done (the thread: or until a caller comes)."""
        progress = self._progress
        try:
            while not self._closed:
                with self._lock:
                    progress.advance(deadline)
                self._tell()
                if request.done or (who == "thread" and self._callers):
                    return
                if not progress.moved and not progress.stirs() and not progress.sleep(deadline):
                    deadline.over(self._awaited(request, who))
        finally:
            with self._lock:
                self._driver = None
                if self._watchers:
                    self._changed.notify_all()

    def _tell(self):
        """Tell those who asked that their operations are over."""
        settled = self._settled
        if not settled:
            return
        while settled:
            try:
                request, error = settled.pop(0)
            except IndexError:  # another thread has just told the last
                break
            if not request.done:
                request.finish(error)
        if self._watchers:
            with self._lock:
                self._changed.notify_all()

    def _withdraw(self, request, error):
        """End an operation that nobody waits for any more."""
        with self._lock:
            self._progress.withdraw(request, error)
        self._tell()

    def _awaited(self, request, who):
        """The ranks of which one must act; while no caller waits, this rank may send to itself."""
        if request.peer is not None:
            return [request.peer]
        return [r for r in range(self.peers.size) if r != self.peers.rank or who == "thread"]

    # -- operations that nobody waits for ----------------------------------------------------

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
                target=self._background,
                args=(watch, timeout),
                name="teachdist-messages",
                daemon=True,
            )
            self._thread.start()
        self._work.set()

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
                    self._await(waiting[0], Deadline(timeout, watch), "thread")
                except LinkError as error:
                    self._withdraw(waiting[0], error)
            self._awake = False
            if self.pending():  # one came just now and relied on this thread
                self._awake = True
                self._work.set()

    def pending(self):
        """The operations that are not done."""
        with self._lock:
            return self._progress.pending()

    def close(self, flush=0.0):
        """Let sends go out for at most `flush` seconds, then end every open operation."""
        with contextlib.suppress(LinkError):
            deadline = Deadline(flush)
            for request in [p for p in self.pending() if p.kind == "send"] if flush else []:
                self.wait(request, deadline)
        self._closed = True
        self._over.set()
        self._work.set()
        self.sockets.ring()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=5)
        with self._lock:
            self._progress.end(lambda request: PeerLost("the group was shut down", request.peer))
        self._tell()
