"""tcp://, file:// and env:// on our stores."""

import os
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks

from teachdist.stores.rendezvous import SCHEMES, use_for_rendezvous


def init(method, ours, times=1):
    """Make a group by ``method``, of ranks that use our stores or torch's."""
    rank = int(os.environ["RANK"])
    use_for_rendezvous(ours[rank])
    found = []
    for _ in range(times):
        if method == "env://":
            dist.init_process_group("gloo")
        else:
            dist.init_process_group("gloo", init_method=method, rank=rank, world_size=2)
        x = torch.ones(1)
        dist.all_reduce(x)
        dist.new_group([0, 1])
        dist.barrier()
        below = dist.distributed_c10d._world.pg_map[dist.group.WORLD][1]
        while hasattr(below, "underlying_store"):
            below = below.underlying_store
        found.append((x.item(), type(below).__module__.partition(".")[0]))
        dist.destroy_process_group()
    use_for_rendezvous(False)
    return found


def method_of(scheme, tmp_path):
    if scheme == "tcp":
        import socket

        with socket.create_server(("127.0.0.1", 0)) as probe:
            return f"tcp://127.0.0.1:{probe.getsockname()[1]}"
    return f"file://{tmp_path}/store" if scheme == "file" else "env://"


@pytest.mark.parametrize("scheme", SCHEMES)
def test_each_scheme(scheme, tmp_path):
    found = run_ranks(2, init, method_of(scheme, tmp_path), (True, True), backend=None)
    assert found == [[(2.0, "teachdist")]] * 2


@pytest.mark.parametrize("ours", [(True, False), (False, True)])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_ours_and_torchs_meet(scheme, ours, tmp_path):
    found = run_ranks(2, init, method_of(scheme, tmp_path), ours, backend=None)
    assert [sums for [(sums, _)] in found] == [2.0, 2.0]
    assert [kind == "teachdist" for [(_, kind)] in found] == list(ours)


@pytest.mark.parametrize("scheme", ["env", "tcp"])
def test_again_and_again(scheme, tmp_path):
    found = run_ranks(2, init, method_of(scheme, tmp_path), (True, True), 3, backend=None)
    assert found == [[(2.0, "teachdist")] * 3] * 2


def test_torchs_handlers_come_back():
    module = sys.modules["torch.distributed.rendezvous"]
    before = dict(module._rendezvous_handlers), module.TCPStore, module.FileStore
    use_for_rendezvous()
    use_for_rendezvous()
    assert module.TCPStore is not dist.TCPStore
    use_for_rendezvous(False)
    use_for_rendezvous(False)
    assert (dict(module._rendezvous_handlers), module.TCPStore, module.FileStore) == before


@pytest.mark.parametrize(
    ("imported", "backend"),
    [("teachdist.stores", "gloo"), ("teachdist.backend", "teachdist")],
)
def test_by_the_environment(imported, backend):
    """Before the ranks meet, the program has imported the stores or the backend."""
    program = (
        f"import {imported}, torch.distributed as dist;"
        f"dist.init_process_group('{backend}');"
        "top = dist.distributed_c10d._world.pg_map[dist.group.WORLD][1];"
        "below = top.underlying_store.underlying_store;"
        "print(type(below).__module__, below._server.host)"
    )
    environment = {
        **os.environ,
        "TEACHDIST_STORES": "1",
        "TEACHDIST_STORE_BIND": "127.0.0.2",
        "MASTER_ADDR": "127.0.0.2",
        "MASTER_PORT": "0",
        "RANK": "0",
        "WORLD_SIZE": "1",
    }
    said = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert said.stdout.split() == ["teachdist.stores.tcp_store.tcp_store", "127.0.0.2"], said.stderr
