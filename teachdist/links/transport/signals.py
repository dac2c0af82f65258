"""How ranks that share memory tell each other "I have written" and "I have read".

Each rank has two counters, READY and DONE, that only grow; the others wait until one of them has
reached a number. A wait has three stages, each dearer and each more patient than the one before:

    look         ~0.1 us   it is there already: most rounds of a busy group
    yield        ~1 us     let another process run and look again, for a moment (spinning.py)
    sleep        ~10 us    say in shared memory "I sleep", block until somebody rings

The bell is a pipe. Who has raised a counter looks at the word ASLEEP of those who may wait for it
and writes a byte only to who sleeps for just this: a busy group makes no system call for a signal,
and nobody is woken in vain. Others open the pipe as they open the memory, through
/proc/<pid>/fd/<fd>, so it has no name and goes with its owner.

Why not only yield: on a busy machine a single yield may last milliseconds, while a sleeper that is
woken goes to the front of the queue. Why not only sleep: two changes of process for every small
message.

Can a ring get lost? The sleeper first says that it sleeps and then looks at the counter; the other
first raises the counter and then looks whether somebody sleeps. In this order at least one of them
notices the other. A processor may delay a store past a later load, so `fence` stands between the
two; and should all fail, the sleeper looks again after a tick (`Deadline`).

Processors that also reorder two stores (ARM) could show a counter before the data it speaks of.
There every signal goes through the pipe, whose locks keep the order: `Tokens` instead of `Words`.
"""

import contextlib
import os
import platform
import select
import struct
import threading

from teachdist.spinning import spin

# Words of a rank's first page, each in a cache line of its own. A sleeper says whom it waits for:
# `for_whom(peer, counter)` is in ASLEEP, the number to be reached in the word behind it.
READY, DONE, ASLEEP = 0, 8, 16

KEEPS_ORDER = platform.machine().lower() in {"x86_64", "amd64", "i686"}

_lock = threading.Lock()


def fence():
    """Everything before is visible to others before anything after is done.

    Taking a free lock is the one thing in Python that makes the processor wait for its stores.
    """
    with _lock:
        pass


def for_whom(peer, counter):
    """What stands in ASLEEP of a rank that waits for this counter of `peer`."""
    return 2 * peer + 1 + (counter == DONE)


class Words:
    """Counters in shared memory, on processors that keep the order of stores (x86).

    words: this rank's first page as 64-bit numbers.
    """

    def __init__(self, rank, words):
        self.rank = rank
        self.words = words
        self._me = {counter: for_whom(rank, counter) for counter in (READY, DONE)}
        self.theirs = {}  # peer -> its counters, to look at: theirs[peer][READY]
        self._pipes = {}
        self.bell, self._own_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self.bell, select.POLLIN)

    def meet(self, peer, words, pid, bell):
        """Get to know a peer: its first page and where its bell is."""
        self.theirs[peer] = words
        path = f"/proc/{int(pid)}/fd/{int(bell)}"
        if not os.readlink(path).startswith("pipe:"):
            raise OSError(f"{path} is {os.readlink(path)}, expected a pipe")
        self._pipes[peer] = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)

    def with_counters(self, peers):
        """(peer, its counters) for each of these peers."""
        return [(peer, self.theirs[peer]) for peer in peers]

    def raise_to(self, counter, value, others):
        """Raise this rank's counter; those of `with_counters` may wait for it."""
        self.words[counter] = value
        with _lock:  # a fence
            pass
        for_me = self._me[counter]
        for peer, words in others:
            if words[ASLEEP] == for_me and words[ASLEEP + 1] <= value:
                self._ring(peer, b"x")

    def wait(self, peer, counter, value, deadline):
        """Wait until `peer` has raised its counter to `value`."""
        theirs = self.theirs[peer]
        if spin(lambda: theirs[counter] >= value):
            return
        self.words[ASLEEP + 1] = value
        self.words[ASLEEP] = for_whom(peer, counter)
        fence()
        try:
            while theirs[counter] < value:
                if not self._sleep(deadline):
                    deadline.over([peer])
        finally:
            self.words[ASLEEP] = 0

    def _ring(self, peer, what):
        # A peer that is gone need not be woken, nor one that has not yet heard the last 4096.
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            os.write(self._pipes[peer], what)

    def _sleep(self, deadline):
        if not self._poll.poll(deadline.tick() * 1000):
            return False
        self._heard(os.read(self.bell, 4096))
        return True

    def _heard(self, data):
        """The bytes say no more than "look again"."""

    def close(self):
        """Take the bell away, let go of the others'."""
        for fd in (self.bell, self._own_end, *self._pipes.values()):
            os.close(fd)
        self._pipes.clear()
        self.theirs.clear()
        self.words = None


_TOKEN = struct.Struct("<IIQ")  # rank, counter, value


class Tokens(Words):
    """Counters that travel through the pipes, on all other processors.

    A pipe holds 4096 tokens; a peer sends at most eight before it must wait for this rank.
    """

    def meet(self, peer, words, pid, bell):
        """Get to know a peer; its counters are what it has told."""
        super().meet(peer, [0] * len(words), pid, bell)

    def raise_to(self, counter, value, others):
        """Raise this rank's counter; those of `with_counters` may wait for it."""
        token = _TOKEN.pack(self.rank, counter, value)
        for peer, _ in others:
            self._ring(peer, token)

    def wait(self, peer, counter, value, deadline):
        """Wait until `peer` has raised its counter to `value`."""
        while self.theirs[peer][counter] < value:
            if not self._sleep(deadline):
                deadline.over([peer])

    def _heard(self, data):
        for rank, counter, value in _TOKEN.iter_unpack(data):
            self.theirs[rank][counter] = value


def signals(rank, words):
    """The kind of signals that this processor needs."""
    return (Words if KEEPS_ORDER else Tokens)(rank, words)
