"""Memory that several processes share and that has no name.

A file in /dev/shm stays behind when its owner is killed. An anonymous file (memfd) has no name in
the file system: it lives as long as somebody has it open or mapped, and others of the same user
reach it through the descriptor of its owner,

    owner: fd = memfd_create(...)          other: open("/proc/<pid of the owner>/fd/<fd>")

so even a kill leaves nothing. The same way leads to the owner's pipe: see `signals.py`.

Memory is taken when it is made (`posix_fallocate`), so that a host without room says so here, by
an error, and not later by SIGBUS in the middle of a copy. It is sealed against shrinking, and
whoever opens it looks first whether it is what was promised: a process id may have a new owner.
"""

import fcntl
import mmap
import os
import sys

# The numbers of <linux/fcntl.h>, which Python's fcntl names only in some versions.
_ADD_SEALS, _SEAL_SHRINK, _SEAL_GROW = 1033, 2, 4

# Python duplicates the descriptor for each map, unless told not to (from 3.13 on).
_KEEP_NO_DESCRIPTOR = {"trackfd": False} if sys.version_info >= (3, 13) else {}

SUPPORTED = hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd")


def create(size, label):
    """New memory of `size` bytes: its descriptor. OSError when there is none to be had."""
    if not SUPPORTED:
        raise OSError("this system has no anonymous shared memory (memfd, /proc)")
    fd = os.memfd_create(f"teachdist-{label}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.posix_fallocate(fd, 0, size)
        fcntl.fcntl(fd, _ADD_SEALS, _SEAL_SHRINK | _SEAL_GROW)
    except BaseException:
        os.close(fd)
        raise
    return fd


def attach(fd, size):
    """Map memory that this process has open. The map lives on when `fd` is closed."""
    if os.fstat(fd).st_size < size:
        raise OSError(f"the shared memory has {os.fstat(fd).st_size} bytes, expected {size}")
    return mmap.mmap(fd, size, **_KEEP_NO_DESCRIPTOR)


def attach_other(pid, fd, size, label):
    """Map the memory that process `pid` has open as `fd`."""
    path = f"/proc/{int(pid)}/fd/{int(fd)}"
    kind = os.readlink(path)
    if not kind.startswith(f"/memfd:teachdist-{label}"):
        raise OSError(f"{path} is {kind}, expected memory of teachdist")
    other = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        return attach(other, size)
    finally:
        os.close(other)
