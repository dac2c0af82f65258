"""Memory without a name: shared between processes, refused when there is none, never left."""

import os
import resource
import subprocess
import sys

import pytest

from teachdist.links.transport import memory

pytestmark = pytest.mark.skipif(not memory.SUPPORTED, reason="needs memfd and /proc (Linux)")


def test_another_process_sees_what_is_written():
    fd = memory.create(4096, "test")
    memory.attach(fd, 4096)[:5] = b"hello"
    code = (
        "from teachdist.links.transport.memory import attach_other\n"
        f"mapped = attach_other({os.getpid()}, {fd}, 4096, 'test')\n"
        "assert mapped[:5] == b'hello'; mapped[5:7] = b'!!'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert memory.attach(fd, 4096)[:7] == b"hello!!"
    os.close(fd)


def test_a_map_outlives_its_descriptor():
    fd = memory.create(4096, "test")
    mapped = memory.attach(fd, 4096)
    os.close(fd)
    mapped[0] = 1
    assert mapped[0] == 1


def test_what_is_too_short_is_not_mapped():
    fd = memory.create(4096, "test")
    with pytest.raises(OSError, match="has 4096 bytes, expected 8192"):
        memory.attach_other(os.getpid(), fd, 8192, "test")
    os.close(fd)


def test_it_can_not_be_cut_under_the_feet_of_others():
    fd = memory.create(8192, "test")
    with pytest.raises(PermissionError):
        os.ftruncate(fd, 0)
    os.close(fd)


def test_a_descriptor_of_something_else_is_refused():
    with open(__file__) as file, pytest.raises(OSError, match="expected memory of teachdist"):
        memory.attach_other(os.getpid(), file.fileno(), 10, "test")
    fd = memory.create(4096, "test")
    with pytest.raises(OSError, match="expected memory of teachdist"):
        memory.attach_other(os.getpid(), fd, 4096, "other")
    os.close(fd)


def test_a_process_that_is_gone_has_no_memory():
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    with pytest.raises(FileNotFoundError):
        memory.attach_other(child.pid, 3, 10, "test")


def test_no_room_is_an_error_and_leaves_no_descriptor():
    before = len(os.listdir("/proc/self/fd"))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(OSError, match=r".+"):
            memory.create(1 << 20, "test")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert len(os.listdir("/proc/self/fd")) == before
