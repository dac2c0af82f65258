"""init_process_group returns when all ranks have come, or says who has not."""

import gc
import os
import subprocess
import sys
import textwrap
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from ranks import RankPool, shared_pool


def place(name):
    """A path that the ranks of this pool share."""
    return Path(os.environ["RANKS_DIRECTORY"], name)


def signals():
    """A store for the test itself, beside the one under test."""
    return dist.FileStore(str(place("signals")), -1)


def start(way, timeout=30, world=None):
    """init_process_group by a way of meeting; rank and world as the ranks have them."""
    rank, world = int(os.environ["RANK"]), world or int(os.environ["WORLD_SIZE"])
    limit = timedelta(seconds=timeout)
    address = {
        "file": f"file://{place(f'store{world}')}",
        "tcp": f"tcp://localhost:{os.environ['MASTER_PORT']}",
        "env": None,
    }[way]
    where = {} if way == "env" else {"rank": rank, "world_size": world}
    dist.init_process_group("teachdist", init_method=address, timeout=limit, **where)


@pytest.mark.parametrize("way", ["file", "tcp", "env"])
def test_it_blocks_until_all_have_joined(way):
    """Rank 1 is half a second late: nobody returns before that."""

    def job():
        rank, told = int(os.environ["RANK"]), signals()
        if rank == 1:
            while told.add(f"{way} begun", 0) < 2:
                pass
            threading.Event().wait(0.5)
            late = time.monotonic()
        else:
            told.add(f"{way} begun", 1)
            late = None
        start(way)
        returned = time.monotonic()
        total = torch.ones(1)
        dist.all_reduce(total)
        dist.destroy_process_group()
        return late, returned, total.item()

    with RankPool(3, None) as pool:
        results = pool.run(job)
    late = results[1][0]
    assert all(returned >= late for _, returned, _ in results)
    assert [total for _, _, total in results] == [3] * 3


def test_it_says_who_is_missing_and_leaves_nothing_behind():
    def job():
        from teachdist.backend.lifecycle import communicators

        rank, told = int(os.environ["RANK"]), signals()
        if rank == 1:  # not there the first time
            while told.add("failed", 0) < 2:
                threading.Event().wait(0.01)
            first = None
        else:
            before = threading.active_count()
            with pytest.raises(dist.DistBackendError) as caught:
                start("file", timeout=1 if rank == 0 else 60)
            first = str(caught.value), dist.is_initialized(), len(communicators())
            first = *first, threading.active_count() - before
            caught = None
            gc.collect()
            told.add("failed", 1)
        start("file")  # and now all come, with the same file
        total = torch.ones(1)
        dist.all_reduce(total)
        dist.destroy_process_group()
        return first, total.item()

    with RankPool(3, None) as pool:
        results = pool.run(job)
    assert [total for _, total in results] == [3] * 3
    text, initialized, communicators, _ = results[0][0]
    assert "rank 0 gave up in init_process_group: 2 of 3 ranks have joined" in text
    assert "within the timeout of 1 s. rank 1 has not joined the group." in text
    assert (initialized, communicators) == (False, 0)
    text, initialized, communicators, _ = results[2][
        0
    ]  # freed by rank 0, long before its own limit
    assert "rank 0 gave up in init_process_group" in text
    assert "rank 1 has not joined" in text
    assert (initialized, communicators) == (False, 0)


def test_a_group_of_one_waits_for_nobody():
    def job():
        start("file", world=1)
        dist.destroy_process_group()

    shared_pool(1, None).run(job)


def test_groups_made_later_do_not_wait():
    """Rank 1 makes the group after rank 0 has returned from making it."""

    def job():
        told = dist.distributed_c10d._get_default_store()
        if dist.get_rank() == 1:
            told.wait(["made"], timedelta(seconds=30))
        group = dist.new_group()
        if dist.get_rank() == 0:
            told.set("made", b"")
        total = torch.ones(1)
        dist.all_reduce(total, group=group)
        return total.item()

    assert shared_pool(2, "teachdist").run(job) == [2, 2]


RANK_0 = """
dist.init_process_group("teachdist", init_method=sys.argv[1], rank=0, world_size=2)
os._exit(0)  # at once, and with it the store
"""

RANK_1 = """
from teachdist.links.rendezvous.peers import Peers

fetch = Peers.fetch


def slow(self, peer):
    time.sleep(0.3)
    return fetch(self, peer)


Peers.fetch = slow
dist.init_process_group("teachdist", init_method=sys.argv[1], rank=1, world_size=2)
print("rank 1 has joined")
"""


def test_rank_0_stays_until_all_have_read_its_card(tmp_path, unused_port):
    """It ends right after; rank 1, which is slow to read, must still have come in."""
    runs = []
    for name, program in (("rank0", RANK_0), ("rank1", RANK_1)):
        head = "import os, sys, time\nimport torch.distributed as dist\n"
        file = tmp_path / f"{name}.py"
        file.write_text(head + textwrap.dedent(program))
        command = [sys.executable, file, f"tcp://localhost:{unused_port}"]
        runs.append(
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        )
    said = [run.communicate(timeout=100)[0] for run in runs]
    assert runs[0].returncode == 0, said[0]
    assert "rank 1 has joined" in said[1], said[1]


@pytest.fixture
def unused_port():
    import socket

    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return probe.getsockname()[1]


def test_the_store_goes_while_ranks_wait():
    """Rank 0, which serves the store, is killed; rank 1 still waits for rank 2."""

    def job():
        import signal

        rank = int(os.environ["RANK"])
        if rank == 2:
            return None
        if rank == 0:
            from teachdist.links.rendezvous.peers import Peers

            fetch = Peers.fetch

            def fetch_and_die(self, peer):
                if self.fetch_of(1) is not None:
                    os.kill(os.getpid(), signal.SIGKILL)
                return fetch(self, peer)

            Peers.fetch_of, Peers.fetch = fetch, fetch_and_die
        port = int(os.environ["MASTER_PORT"])
        store = dist.TCPStore("localhost", port, 3, rank == 0, wait_for_workers=False)
        with pytest.raises(RuntimeError) as caught:
            dist.init_process_group("teachdist", store=store, rank=rank, world_size=3)
        return str(caught.value), dist.is_initialized()

    with RankPool(3, None, grace=20) as pool:
        first, second, _ = pool.outcomes(job)
    assert type(first).__name__ == "RankDiedError"
    text, initialized = second
    assert "rank 0" in text or "the store does not answer" in text
    assert not initialized
