"""Who is speaking: this process in words, and whether another one still lives.

An error is only useful when it says *which* process is meant. A pid alone does not: pids are used
again. So a process is known by host, pid and the moment when it was started, and a "dead" verdict
is given only where it can be had, on the same host. About a process elsewhere we answer None.
"""

import os
import socket
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Process:
    """One process; ``space`` tells apart containers that share a host's name."""

    host: str
    pid: int
    started: int = 0  # clock ticks after boot; 0 where the system does not tell
    space: str = ""
    rank: str = ""

    def __str__(self):
        rank = f"rank {self.rank}, " if self.rank else ""
        return f"{rank}pid {self.pid} on {self.host}"

    def same(self, other):
        """Whether both are one process, whatever rank it had then."""
        return self._key == other._key

    @property
    def _key(self):
        return self.host, self.space, self.pid, self.started

    def as_dict(self):
        """For JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, fields):
        """From what :meth:`as_dict` gave; anything that came over a wire must be checked here."""
        return cls(
            host=str(fields.get("host", "?"))[:255],
            pid=int(fields.get("pid", 0)),
            started=int(fields.get("started", 0)),
            space=str(fields.get("space", ""))[:255],
            rank=str(fields.get("rank", ""))[:20],
        )


def me():
    """Describe this process. The rank is what a launcher put into the environment, if any."""
    return Process(
        host=socket.gethostname(),
        pid=os.getpid(),
        started=_started(os.getpid()),
        space=_space(),
        rank=os.environ.get("RANK", ""),
    )


def is_alive(process):
    """True, False, or None when it cannot be known (another host or container)."""
    if (process.host, process.space) != (socket.gethostname(), _space()):
        return None
    try:
        os.kill(process.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return _started(process.pid) == process.started


def _started(pid):
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    # The second field is the program's name in brackets, which may hold blanks; start time is 22nd.
    state, *rest = stat.rpartition(")")[2].split()
    return -1 if state == "Z" else int(rest[18])


def _space():
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""
