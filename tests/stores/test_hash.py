import gc
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch.distributed as dist
from ranks import run_ranks

from stores.kinds import SHORT
from teachdist import stores

both = pytest.mark.parametrize("module", [dist, stores], ids=["torchs", "ours"])


@both
def test_threads_share_it(module):
    store = module.HashStore()
    store.set("first_key", "first_value")
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(store.get, "first_key").result(20) == b"first_value"
        pool.submit(store.set, "second_key", "x").result(20)
    assert store.get("second_key") == b"x"


@both
def test_processes_do_not(module):
    def set_in_a_child(name):
        import importlib
        import os

        store = importlib.import_module(name).HashStore()
        child = os.fork()
        if child == 0:
            store.set("k", "v")
            os._exit(0)
        os.waitpid(child, 0)
        return store.check(["k"])

    assert run_ranks(1, set_in_a_child, module.__name__, backend=None) == [False]


@both
def test_no_arguments(module):
    assert module.HashStore().num_keys() == 0
    with pytest.raises(TypeError):
        module.HashStore("path")


@both
def test_it_initializes_a_group_of_one(module):
    def init(name):
        import importlib

        store = importlib.import_module(name).HashStore()
        dist.init_process_group("gloo", store=store, rank=0, world_size=1)
        return dist.get_world_size()

    assert run_ranks(1, init, module.__name__, backend=None) == [1]


def test_all_waiters_of_a_key_wake():
    store = stores.HashStore()
    with ThreadPoolExecutor(5) as pool:
        ends = [pool.submit(store.get, "k") for _ in range(5)]
        while len(store._waits.report()) < 5:
            pass
        store.set("k", "v")
        assert [end.result(20) for end in ends] == [b"v"] * 5


def test_a_waiter_that_gives_up_leaves_nothing():
    store = stores.HashStore()
    store.set_timeout(SHORT)
    with pytest.raises(dist.DistStoreError):
        store.wait(["absent"])
    assert not store._waits.report()
    store.queue_push("absent", "1")
    assert store.queue_pop("absent") == b"1"


def test_values_of_a_store_go_with_it():
    before = threading.active_count()
    store = stores.HashStore()
    store.set("k", "v" * 1000)
    del store
    gc.collect()
    assert threading.active_count() == before
