"""A program of two ranks that ends in one way after the other; prints what was left, as JSON.

Started by test_ends.py as `python ends.py DIRECTORY`. It imports torch once and forks the ranks of
each way, so each rank is a whole interpreter, which ends as a script does: also its own clean-up at
exit runs. Rank 1 ends; rank 0 waits for it in a collective and must be told.
"""

import json
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

import teachdist.backend

WAYS = ("leave", "exit", "exception", "interrupt", "terminate", "kill")
SIGNALS = {"interrupt": signal.SIGINT, "terminate": signal.SIGTERM, "kill": signal.SIGKILL}
PATIENCE = 20.0  # seconds until the parent gives up on a rank


def rank_of(way, rank, folder, ready):
    """One rank: use everything that takes something from the system, then end."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    dist.init_process_group(
        "teachdist",
        store=dist.FileStore(str(folder / f"store-{way}"), 2),
        rank=rank,
        world_size=2,
        timeout=timedelta(seconds=15),
    )
    other = dist.new_group(backend="teachdist")
    x = torch.ones(1000)
    for group in (dist.group.WORLD, other):
        dist.all_reduce(x, group=group)
        dist.all_reduce(x, group=group, async_op=True).wait()
        work = dist.isend(x, 1 - rank, group=group)
        dist.recv(torch.zeros(1000), 1 - rank, group=group)
        work.wait()
    os.write(ready, json.dumps(taken()).encode() + b"\n")
    if way == "leave":
        dist.destroy_process_group()
    elif rank == 0 or way in SIGNALS:
        with teachdist.backend.guard():
            dist.all_reduce(x) if rank == 0 else dist.recv(x, 0)
    elif way == "exit":
        sys.exit(3)
    else:
        raise RuntimeError("out of ideas")


def taken():
    """What this process has that could outlive it: inodes of its memory and of its sockets."""
    found = {"memory": [], "sockets": []}
    for name in os.listdir("/proc/self/fd"):
        path = f"/proc/self/fd/{name}"
        try:
            what = os.readlink(path)
        except OSError:
            continue
        if "memfd:teachdist" in what:
            found["memory"].append(os.stat(path).st_ino)
        elif what.startswith("socket:"):
            found["sockets"].append(int(what[8:-1]))
    return found


def start(way, rank, folder):
    """Fork a rank: (its process id, the pipe on which it says that it is ready)."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writer)
        return pid, reader
    os.close(reader)
    os.setpgid(0, 0)  # what it starts can be found by this
    out = os.open(folder / f"said-{way}-{rank}", os.O_WRONLY | os.O_CREAT)
    os.dup2(out, 1)
    os.dup2(out, 2)
    rank_of(way, rank, folder, writer)
    sys.exit(0)


def ended(pid):
    """The status of a process: its exit code, minus the signal's number, or "hung"."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return "hung"


def left(pids, things):
    """What is still there of these processes."""
    files = [
        str(p) for folder in ("/dev/shm", os.environ["TMPDIR"]) for p in Path(folder).glob("*")
    ]
    files = [name for name in files if "teachdist" in name]
    processes, memory = [], []
    for proc in Path("/proc").glob("[0-9]*"):
        try:
            group = int((proc / "stat").read_text().rpartition(")")[2].split()[2])
            inodes = {
                int(line.split()[4])
                for line in (proc / "maps").read_text().splitlines()
                if "memfd:teachdist" in line
            }
        except OSError:  # it ended just now, or is not ours to read
            continue
        if group in pids:
            processes.append(proc.name)
        memory += inodes & set(things["memory"])
    table = Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()
    fields = [line.split() for line in table.splitlines()]
    sockets = [int(line[9]) for line in fields if line[9].isdigit()]
    return {
        "files": files,
        "processes": processes,
        "memory": memory,
        "sockets": sorted(set(sockets) & set(things["sockets"])),
    }


def play(way, folder):
    """Let two ranks end in a way: {"ranks": their statuses, "seconds": ..., "left": ...}."""
    ranks = [start(way, rank, folder) for rank in range(2)]
    things = {"memory": [], "sockets": []}
    for _, reader in ranks:
        with os.fdopen(reader) as said:
            for kind, inodes in json.loads(said.readline()).items():
                things[kind] += inodes
    began = time.monotonic()
    if way in SIGNALS:
        os.kill(ranks[1][0], SIGNALS[way])
    statuses = [ended(pid) for pid, _ in reversed(ranks)][::-1]
    return {
        "ranks": statuses,
        "seconds": time.monotonic() - began,
        "said": [(folder / f"said-{way}-{rank}").read_text() for rank in range(2)],
        "took": {kind: len(inodes) for kind, inodes in things.items()},
        "left": left([pid for pid, _ in ranks], things),
    }


if __name__ == "__main__":
    print(json.dumps({way: play(way, Path(sys.argv[1])) for way in WAYS}))
