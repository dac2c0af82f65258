"""Turns: the collectives of a group run one at a time, in the order in which they were called.

Collectives match by order, and all of a group's share its links, so two of them must never run
at once. Where a call runs depends on who waits:

- The caller waits anyway (async_op=False) and nothing is before it: right here, on the caller's
  thread. That saves two changes of thread, which cost more than sending a small tensor.
- Otherwise it queues for the group's own thread, which starts when first needed.

A caller that finds others before it queues as well and waits, so that its turn stays its place in
the order: a callback, autograd and the main thread may all use one group.
"""

import queue
import threading

from teachdist.links.waiting import TICK


class CallOrder:
    """Runs jobs (callables that raise nothing) in order.

    lock: to be held by who calls `mine` or `submit`, and while he takes the call's number, so that
    numbers are given in the order of turns.
    """

    def __init__(self, name):
        self._name = name
        self._queue = queue.SimpleQueue()
        self._thread = None
        self._open = 0
        self._draining = 0
        self.lock = threading.Lock()
        self._idle = threading.Condition(self.lock)
        self._running = threading.Lock()

    def submit(self, job):
        """Have job() run after those before it, on the group's thread."""
        self._open += 1
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._queue.put(job)

    def mine(self):
        """Whether nobody is before this thread; if so the turn is taken until `over`."""
        if self._open:
            return False
        self._open = 1
        self._running.acquire()  # at once: nobody is running
        return True

    def over(self):
        """This thread's turn, which `mine` has taken, is over."""
        self._running.release()
        self._over()

    def _over(self):
        with self.lock:
            self._open -= 1
            if self._draining and not self._open:
                self._idle.notify_all()

    def drain(self):
        """Wait until everything submitted is over (each job has a deadline of its own)."""
        with self.lock:
            self._draining += 1
            while self._open:
                self._idle.wait(TICK)
            self._draining -= 1

    def stop(self):
        """End the thread after what is queued."""
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            self._queue.put(None)
            thread.join(timeout=10)

    def _run(self):
        while (job := self._queue.get()) is not None:
            with self._running:
                job()
            del job
            self._over()
