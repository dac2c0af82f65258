"""Ranks forked from a process that has used the backend itself, over sockets and shared memory.

A fork copies the parent's listener, its threads' locks and its registries, but no thread: each
child must make its own.
"""

import os
import subprocess
import sys
import textwrap

import pytest

PROGRAM = """
import os, sys, traceback
import torch
import torch.distributed as dist

path, size, alive = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "alive"
torch.set_num_threads(1)


def use(rank, n):
    x = torch.full((100_000,), float(rank))
    dist.all_reduce(x)
    assert x[-1].item() == n * (n - 1) / 2
    future = dist.all_reduce(torch.ones(3), async_op=True).get_future()
    assert future.then(lambda f: f.value()[0].sum().item()).wait() == 3 * n
    got = torch.zeros(100_000)
    works = [dist.isend(x + rank, (rank + 1) % n), dist.irecv(got, (rank - 1) % n)]
    for work in works:
        work.wait()
    assert got[0].item() == n * (n - 1) / 2 + (rank - 1) % n
    found = [None] * n
    dist.all_gather_object(found, os.getpid())
    assert len(set(found)) == n, found


dist.init_process_group("teachdist", store=dist.HashStore(), rank=0, world_size=1)
use(0, 1)
if not alive:
    dist.destroy_process_group()

children = []
for rank in range(size):
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            if alive:
                dist.destroy_process_group()  # the copy of the parent's
            dist.init_process_group(
                "teachdist", init_method=f"file://{path}", rank=rank, world_size=size
            )
            backend = dist.group.WORLD._get_backend(torch.device("cpu"))
            use(rank, size)
            kinds = backend.communicator.links.kinds.values()
            kinds = sorted({type(kind).__name__ for kind in kinds})
            print(f"rank {rank} {kinds}", flush=True)
            dist.destroy_process_group()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    children.append(pid)
statuses = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
print("statuses", statuses)
if alive:
    use(0, 1)
    dist.destroy_process_group()
print("parent is fine")
"""


@pytest.mark.parametrize("parent", ["alive", "gone"])
@pytest.mark.parametrize(("shm", "kind"), [("0", "TcpLinks"), ("1", "ShmLinks")])
def test_forked_ranks(tmp_path, parent, shm, kind):
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    done = subprocess.run(
        [sys.executable, program, tmp_path / "store", "3", parent],
        env=os.environ | {"TEACHDIST_SHM": shm},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "statuses [0, 0, 0]" in done.stdout, done.stderr
    assert done.stdout.count(f"['{kind}']") == 3
    assert "parent is fine" in done.stdout
