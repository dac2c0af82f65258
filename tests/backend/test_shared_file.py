"""Initialization through a shared file: what it wants, and what becomes of the file."""

import os
import subprocess
import sys
import textwrap
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from ranks import BACKENDS, RankPool, raised, shared_pool

every_backend = pytest.mark.parametrize("backend", BACKENDS)


def start(backend, name, timeout=30):
    """Meet in a file of that name; its path."""
    path = Path(os.environ["RANKS_DIRECTORY"], name)
    dist.init_process_group(
        backend,
        init_method=f"file://{path}",
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
        timeout=timedelta(seconds=timeout),
    )
    return path


def total():
    x = torch.ones(1)
    dist.all_reduce(x)
    return x.item()


@every_backend
def test_a_file_that_is_not_there_in_a_directory_that_is(backend):
    def job():
        path = start(backend, f"new-{backend}")
        found = total(), path.exists()
        dist.destroy_process_group()
        return found

    assert shared_pool(2, None).run(job) == [(2, True)] * 2


def test_the_directory_must_be_there(tmp_path):
    """torch's FileStore tries until its time is up; ours says so at once."""
    from teachdist.stores import FileStore

    with pytest.raises(OSError, match="no/such/directory"):
        FileStore(str(tmp_path / "no/such/directory/file"), 1)


@every_backend
def test_the_file_is_created_and_gone_after_a_clean_run(backend):
    def job():
        path = start(backend, f"clean-{backend}")
        there = path.exists(), path.stat().st_size > 0
        total()
        dist.barrier()
        dist.destroy_process_group()
        return there, path

    results = shared_pool(2, None).run(job)
    assert [there for there, _ in results] == [(True, True)] * 2
    assert not results[0][1].exists()


@every_backend
def test_each_initialization_has_a_file_of_its_own(backend):
    def job():
        found = []
        for number in range(3):
            start(backend, f"fresh-{backend}-{number}")
            found.append(total())
            dist.destroy_process_group()
        return found

    assert shared_pool(2, None).run(job) == [[2, 2, 2]] * 2


@every_backend
def test_an_empty_file_does_as_well(backend):
    def job():
        Path(os.environ["RANKS_DIRECTORY"], f"empty-{backend}").touch()
        start(backend, f"empty-{backend}")
        found = total()
        dist.destroy_process_group()
        return found

    assert shared_pool(2, None).run(job) == [2, 2]


def test_it_is_locked_by_fcntl():
    """While somebody holds the lock nobody gets in; when it is let go the ranks meet."""

    def job():
        import fcntl

        path = Path(os.environ["RANKS_DIRECTORY"], "locked")
        if os.environ["RANK"] == "0":
            ready, told = os.pipe()
            if os.fork() == 0:  # it holds the lock and ends, whatever happens here
                with path.open("a") as file:
                    fcntl.flock(file, fcntl.LOCK_EX)
                    os.write(told, b"!")
                    time.sleep(0.3)
                    os._exit(0)
            os.read(ready, 1)
        began = time.monotonic()
        start("teachdist", "locked")
        took = time.monotonic() - began
        found = total()
        dist.destroy_process_group()
        if os.environ["RANK"] == "0":
            os.wait()
        return found, took

    results = shared_pool(2, None).run(job)
    assert [found for found, _ in results] == [2, 2]
    assert results[0][1] >= 0.25


ALONE = """
import sys
import torch.distributed as dist
dist.init_process_group("teachdist", init_method=f"file://{sys.argv[1]}", rank=0, world_size=2)
"""


def test_a_file_left_by_a_killed_rank(tmp_path):
    """It stays; ranks that meet there again miss each other; when it is deleted they meet."""
    program, path = tmp_path / "alone.py", tmp_path / "left"
    program.write_text(textwrap.dedent(ALONE))
    with subprocess.Popen(
        [sys.executable, program, path], stderr=subprocess.PIPE, text=True
    ) as killed:
        for line in killed.stderr:
            if "rank 1 has not joined" in line:  # it waits for the other
                killed.kill()
    assert path.exists()

    def again(clean):
        if clean and os.environ["RANK"] == "0":
            path.unlink()
        ready = dist.FileStore(str(Path(os.environ["RANKS_DIRECTORY"], "ready")), -1)
        ready.add(f"{clean}", 1)
        while ready.add(f"{clean}", 0) < 2:
            pass
        rank, limit = int(os.environ["RANK"]), timedelta(seconds=20 if clean else 1.5)
        how = {"init_method": f"file://{path}", "rank": rank, "world_size": 2, "timeout": limit}
        error = raised(dist.init_process_group, "teachdist", **how)
        found = total() if error is None else None
        if error is None:
            dist.destroy_process_group()
        return error, found

    with RankPool(2, None) as pool:
        first, second = pool.run(again, False)
    assert "rank 1 has not joined the group" in first[0][1]
    assert "rank 1 gave up in init_process_group: the process of rank 0 has ended" in second[0][1]
    assert "left over from an earlier run: start all ranks with a new file" in second[0][1]
    with RankPool(2, None) as pool:
        assert pool.run(again, True) == [(None, 2)] * 2
