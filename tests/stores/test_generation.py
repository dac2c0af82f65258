import json
import os

import pytest
import torch.distributed as dist
from ranks import run_ranks

from stores.kinds import pid_of_nobody
from teachdist import stores
from teachdist.stores.generation import generation
from teachdist.stores.who import me


def came_before(store, rank, **changes):
    store.add(f"generation/{rank}", 1)
    store.set(f"generation/{rank}/1", json.dumps({**me().as_dict(), **changes}))


def test_the_first_has_no_prefix():
    store = stores.HashStore()
    assert generation(store, 0) is store


def test_the_same_process_again():
    store = stores.HashStore()
    first = [generation(store, rank) for rank in range(2)]
    first[0].set("address", "old")
    second = [generation(store, rank) for rank in range(2)]
    assert not second[1].check(["address"])
    second[0].set("address", "new")
    assert second[1].get("address") == b"new"
    assert store.get("generation 2/address") == b"new"


def test_a_restart_is_told(caplog):
    store = stores.HashStore()
    came_before(store, 0, pid=pid_of_nobody())
    assert isinstance(generation(store, 0), stores.PrefixStore)
    assert "and is gone. This is launch 2" in caplog.text


def test_a_second_launch_is_refused():
    store = stores.HashStore()
    parent = os.getppid()
    with open(f"/proc/{parent}/stat") as stat:
        started = int(stat.read().rpartition(")")[2].split()[19])
    came_before(store, 1, pid=parent, started=started)
    generation(store, 0)
    with pytest.raises(dist.DistStoreError, match=rf"rank 1 joined.*pid {parent}.*still running"):
        generation(store, 1)


def test_of_another_host_nothing_is_known(caplog):
    store = stores.HashStore()
    came_before(store, 0, host="elsewhere")
    generation(store, 0)
    assert "on another host; is it still running?" in caplog.text


def test_a_group_made_twice_on_one_store():
    """What hangs without: the second group finds the first one's addresses."""

    def twice(port):
        rank = int(os.environ["RANK"])
        store = stores.TCPStore("127.0.0.1", port)
        sums = []
        for _ in range(3):
            import torch

            mine = generation(store, rank)
            dist.init_process_group("gloo", store=mine, rank=rank, world_size=2)
            x = torch.ones(1)
            dist.all_reduce(x)
            sums.append(x.item())
            dist.destroy_process_group()
        return sums

    with stores.TCPStore("127.0.0.1", 0, is_master=True) as store:
        assert run_ranks(2, twice, store.port, backend=None) == [[2, 2, 2]] * 2
