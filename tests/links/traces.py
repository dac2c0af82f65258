"""What a group takes from the system: descriptors, mapped memory, threads. Nothing may stay."""

import gc
import os
import threading
from collections import Counter
from pathlib import Path


def descriptors():
    """How many of each kind this process has open: {"socket": 3, "pipe": 2, ...}."""
    kinds = Counter()
    for name in os.listdir("/proc/self/fd"):
        try:
            kinds[os.readlink(f"/proc/self/fd/{name}").partition(":")[0]] += 1
        except OSError:
            continue  # the directory itself
    return kinds


def memory():
    """How many bytes of teachdist's shared memory are mapped, by what they are for."""
    gc.collect()
    found = Counter()
    for line in Path("/proc/self/maps").read_text().splitlines():
        if "memfd:teachdist-" in line:
            begin, end = (int(part, 16) for part in line.split()[0].split("-"))
            found[line.partition("memfd:teachdist-")[2].split()[0]] += end - begin
    return found


def threads():
    """Names of teachdist's threads that belong to a group."""
    names = {thread.name for thread in threading.enumerate()}
    return sorted(n for n in names if n.startswith("teachdist") and n != "teachdist-futures")


def resident():
    """Bytes of memory in use by this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
