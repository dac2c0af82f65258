"""What the documentation says of all stores, on torch's and on ours."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import chain

import pytest
import torch.distributed as dist
from ranks import run_ranks

from stores.kinds import LONG, OURS, SHORT, TCP, WITH_QUEUES
from teachdist import stores
from teachdist.stores import base

ANY_TIMEOUT = (dist.DistStoreError, RuntimeError)  # torch's FileStore raises the latter


def all_of(makers, names):
    return [getattr(makers, name) for name in names]


def fails_in_time(call, seconds, exception=dist.DistStoreError):
    """The call raises after about so many seconds (torch's FileStore counts whole ones)."""
    start = time.monotonic()
    with pytest.raises(exception) as caught:
        call()
    assert seconds * 0.8 <= time.monotonic() - start < 20
    return str(caught.value)


# store.purpose, three kinds, the base class


def test_a_value_set_by_one_rank_is_read_by_another():
    """And init_process_group works on the store."""

    def exchange(make):
        rank = int(__import__("os").environ["RANK"])
        store = make()
        dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
        store.set(f"from {rank}", f"hello {rank}")
        read = store.get(f"from {1 - rank}")
        dist.destroy_process_group()
        return read

    torchs = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    with stores.TCPStore("127.0.0.1", 0, is_master=True) as ours:
        for port, classes in ((torchs.port, dist), (ours.port, stores)):
            make = connector(classes.__name__, port)
            assert run_ranks(2, exchange, make, backend=None) == [b"hello 1", b"hello 0"]


def connector(module, port):
    def make():
        import importlib

        return importlib.import_module(module).TCPStore("127.0.0.1", port)

    return make


@pytest.mark.parametrize("module", [dist, stores])
def test_kinds(module):
    for name in ("TCPStore", "FileStore", "HashStore", "PrefixStore"):
        assert issubclass(getattr(module, name), dist.Store)


def test_a_python_subclass():
    class Mine(dist.Store):
        def __init__(self):
            super().__init__()
            self.values = {}

        def set(self, key, value):
            self.values[key] = value

        def get(self, key):
            return self.values[key]

    store = Mine()
    below = dist.PrefixStore("p", store)  # in C++
    below.set("k", "v")
    assert store.values == {"p/k": b"v"}
    assert below.get("k") == b"v"


# set, get


def test_set_and_get(store):
    store.set("first_key", "first_value")
    assert store.get("first_key") == b"first_value"


def test_a_second_set_wins(store):
    store.set("first_key", "first_value")
    store.set("first_key", "x")
    assert store.get("first_key") == b"x"


def test_any_bytes(store):
    value = bytes(range(256)) * 3
    store.set("k", value)
    assert store.get("k") == value
    store.set("k", "")
    assert store.get("k") == b""
    store.set("ключ/键 \n", "ü")
    assert store.get("ключ/键 \n") == "ü".encode()


def test_get_waits_for_the_key(store):
    with ThreadPoolExecutor(1) as pool:
        value = pool.submit(store.clone().get, "late")
        store.set("late", "here")
        assert value.result(20) == b"here"


def test_get_in_vain(make):
    store = make(SHORT)
    fails_in_time(lambda: store.get("absent"), 0.3, ANY_TIMEOUT)


@pytest.mark.parametrize("kind", OURS)
def test_our_time_outs_name_the_missing_keys_and_the_waiter(makers, kind):
    store = getattr(makers, kind)(SHORT)
    store.set("there", "1")
    text = fails_in_time(lambda: store.wait(["there", "bad_key"]), 0.3)
    assert "bad_key'" in text
    assert "'there'" not in text
    assert f"pid {__import__('os').getpid()} on " in text
    assert "0.3 s" in text


# add


def test_add(store):
    assert store.add("first_key", 1) == 1
    assert store.add("first_key", 6) == 7
    assert store.get("first_key") == b"7"


def test_add_a_negative_amount(store):
    store.add("n", 5)
    assert store.add("n", -7) == -2
    assert store.get("n") == b"-2"


@pytest.mark.parametrize("amount", ["1", 1.5, None, 1 << 63])
def test_add_of_what_is_no_64_bit_integer(store, amount):
    with pytest.raises(TypeError):
        store.add("n", amount)


def test_add_on_a_text(make):
    """Torch's TCPStore client does not survive it, so a throw-away store."""
    store = make()
    store.set("k", "text")
    with pytest.raises((dist.DistError, ValueError)):
        store.add("k", 1)


@pytest.mark.parametrize("kind", OURS)
def test_add_on_a_text_leaves_our_stores_usable(makers, kind):
    store = getattr(makers, kind)()
    store.set("k", "text")
    with pytest.raises(dist.DistStoreError, match=r"add.*k.*holds b'text'"):
        store.add("k", 1)
    assert store.get("k") == b"text"
    assert store.add("other", 1) == 1


@pytest.mark.parametrize("kind", ["our_tcp", "our_hash", "our_prefix"])
def test_add_on_a_number_that_set_put_there(makers, kind):
    store = getattr(makers, kind)()
    store.set("n", "5")
    with pytest.raises(dist.DistStoreError, match=r"set\(\)"):
        store.add("n", 2)
    assert store.get("n") == b"5"
    assert store.delete_key("n")
    assert store.add("n", 2) == 2


@pytest.mark.parametrize("kind", OURS)
def test_a_counter_does_not_wrap(makers, kind):
    store = getattr(makers, kind)()
    if kind == "our_client_of_torchs_server":
        pytest.skip("torch's server counts, and wraps")
    store.add("n", (1 << 63) - 1)
    with pytest.raises(dist.DistStoreError, match="64 bits"):
        store.add("n", 1)
    assert store.add("n", -1) == (1 << 63) - 2


def test_add_counts_every_call_of_every_thread(store):
    def count(clone):
        return [clone.add("n", 1) for _ in range(25)]

    with ThreadPoolExecutor(4) as pool:
        seen = pool.map(count, [store.clone() for _ in range(4)])
    assert sorted(chain(*seen)) == list(range(1, 101))


# append


def test_append(store):
    store.append("first_key", "po")
    store.append("first_key", "tato")
    assert store.get("first_key") == b"potato"


# check


def test_check(store):
    assert store.check(["first_key"]) is False
    store.add("first_key", 1)
    assert store.check(["first_key"]) is True
    assert store.check(["first_key", "absent"]) is False
    assert store.check([]) is True


# clone


def test_clone(store):
    clone = store.clone()
    assert isinstance(clone, dist.Store)
    clone.set("k", "v")
    assert store.get("k") == b"v"


def test_clones_work_at_once_in_threads(store):
    def fill(number):
        mine = clones[number]
        for i in range(10):
            mine.set(f"{number}/{i}", str(i))
        return mine.get(f"{(number + 1) % 4}/9")

    clones = [store.clone() for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(fill, range(4))) == [b"9"] * 4


def test_a_clone_can_set_what_the_original_waits_for(store):
    with ThreadPoolExecutor(1) as pool:
        value = pool.submit(store.get, "k")
        store.clone().set("k", "v")
        assert value.result(20) == b"v"


# compare_set


def test_compare_set(store):
    store.set("key", "first_value")
    assert store.compare_set("key", "first_value", "second_value") == b"second_value"
    assert store.get("key") == b"second_value"
    assert store.compare_set("key", "first_value", "third_value") == b"second_value"
    assert store.get("key") == b"second_value"


def test_compare_set_with_nothing_expected(store):
    assert store.compare_set("new", "", "v") == b"v"
    assert store.get("new") == b"v"
    # "if expected_value is empty" means: if there is no value. Otherwise it would not be a test.
    assert store.compare_set("new", "", "w") == b"v"
    assert store.get("new") == b"v"


def test_compare_set_of_a_missing_key(store):
    assert store.compare_set("missing", "expected", "desired") == b"expected"
    assert store.check(["missing"]) is False


# delete_key


@pytest.mark.parametrize(
    "kind", ["torchs_tcp", "our_tcp", "torchs_hash", "our_hash", "torchs_prefix", "our_prefix"]
)
def test_delete_key(makers, kind):
    store = getattr(makers, kind)()
    store.set("first_key", "first_value")
    assert store.delete_key("first_key") is True
    assert store.delete_key("bad_key") is False
    assert store.check(["first_key"]) is False


# extended operations


def test_has_extended_api(make, request):
    supports = make().has_extended_api()
    assert isinstance(supports, bool)
    assert supports is ("torchs_file" not in request.node.name)


def test_multi_set_and_multi_get(store):
    assert store.multi_set(["first_key", "second_key"], ["po", "tato"]) is None
    assert store.get("first_key") == b"po"
    assert store.get("second_key") == b"tato"
    assert store.multi_get(["second_key", "first_key"]) == [b"tato", b"po"]
    assert store.multi_get([]) == []


def test_multi_get_example(store):
    store.set("first_key", "po")
    store.set("second_key", "tato")
    assert store.multi_get(["first_key", "second_key"]) == [b"po", b"tato"]


def test_multi_get_in_vain(make):
    store = make(SHORT)
    store.set("k", "v")
    fails_in_time(lambda: store.multi_get(["k", "absent"]), 0.3, ANY_TIMEOUT)


@pytest.mark.parametrize("kind", OURS)
def test_multi_set_of_unequal_lists(makers, kind):
    with pytest.raises(dist.DistStoreError, match="2 keys but 1 values"):
        getattr(makers, kind)().multi_set(["a", "b"], ["1"])


# num_keys, list_keys


def test_num_keys_grows_by_one_per_key(store):
    before = store.num_keys()
    store.set("first_key", "first_value")
    store.add("counter", 1)
    assert store.num_keys() == before + 2
    store.set("first_key", "x")
    assert store.num_keys() == before + 2


@pytest.mark.parametrize(
    "kind",
    ["torchs_tcp", "our_tcp", "torchs_file", "our_file", "torchs_prefix", "our_prefix"],
)
def test_num_keys_example(makers, kind):
    store = getattr(makers, kind)()
    store.set("first_key", "first_value")
    assert store.num_keys() == 2


@pytest.mark.parametrize("kind", ["torchs_hash", "our_hash"])
def test_a_hash_store_has_no_key_for_coordination(makers, kind):
    store = getattr(makers, kind)()
    store.set("first_key", "first_value")
    assert store.num_keys() == 1


@pytest.mark.parametrize("kind", [*OURS, "torchs_tcp", "torchs_hash", "torchs_prefix"])
def test_list_keys(makers, kind):
    store = getattr(makers, kind)()
    store.set("a", "1")
    store.add("b/c", 1)
    assert sorted(store.list_keys()) == ["a", "b/c"]


# queues


def test_queue(queues):
    store = queues()
    assert store.queue_len("q") == 0
    store.queue_push("q", "one")
    store.queue_push("q", b"\x00two")
    assert store.queue_len("q") == 2
    assert store.queue_pop("q") == b"one"
    assert store.queue_len("q") == 1
    assert store.queue_pop(key="q", block=False) == b"\x00two"
    assert store.queue_len("q") == 0


def test_pop_from_an_empty_queue(queues):
    store = queues()
    start = time.monotonic()
    with pytest.raises(dist.QueueEmptyError):
        store.queue_pop("q", block=False)
    assert time.monotonic() - start < 20  # of the 30 s of the time-out


def test_pop_in_vain(queues):
    store = queues(SHORT)
    fails_in_time(lambda: store.queue_pop("q"), 0.3)


def test_pop_waits_for_a_push(queues):
    store = queues()
    with ThreadPoolExecutor(1) as pool:
        value = pool.submit(store.clone().queue_pop, "q")
        store.queue_push("q", "late")
        assert value.result(20) == b"late"


def test_queues_work_with_check_and_wait(queues):
    store = queues(SHORT)
    assert store.check(["q"]) is False
    store.queue_push("q", "1")
    assert store.check(["q"]) is True
    assert store.wait(["q"]) is None
    store.queue_pop("q")
    assert store.check(["q"]) is False


@pytest.mark.parametrize("kind", OURS)
def test_a_queue_and_a_value_of_one_name(makers, kind):
    """The documentation warns of it. In ours they are two things: neither spoils the other."""
    store = getattr(makers, kind)()
    store.set("k", "value")
    store.queue_push("k", "item")
    assert store.get("k") == b"value"
    assert store.queue_pop("k") == b"item"
    assert store.get("k") == b"value"


def test_every_value_is_popped_once(queues):
    store = queues()
    clones = [store.clone() for _ in range(3)]

    def take(clone):
        return [clone.queue_pop("q") for _ in range(5)]

    # Whoever was woken, and found another one faster, waits again.
    with ThreadPoolExecutor(3) as pool:
        for i in range(15):
            store.queue_push("q", str(i))
        taken = pool.map(take, clones)
    assert sorted(map(int, chain(*taken))) == list(range(15))


@pytest.mark.parametrize("kind", ["torchs_tcp", *OURS])
def test_a_push_wakes_one_of_those_that_wait(makers, kind, monkeypatch):
    """Told apart by the time-out: one returns, the others wait in vain."""
    began = []
    deadline = base.Deadline.__init__
    monkeypatch.setattr(
        base.Deadline,
        "__init__",
        lambda self, seconds: (deadline(self, seconds), began.append(1))[0],
    )
    store = getattr(makers, kind)(timedelta(seconds=2))
    clones = [store.clone() for _ in range(3)]

    def wait(clone):
        try:
            return clone.wait(["q"])
        except dist.DistStoreError:
            return "in vain"

    how_many_wait = {
        "our_tcp": lambda: len(store._server._waits.report()),
        "our_prefix": lambda: len(store.underlying_store._server._waits.report()),
        "our_hash": lambda: len(store._waits.report()),
        "our_file": lambda: len(began),
    }.get(kind, asleep_for_a_while())
    with ThreadPoolExecutor(3, "waiter") as pool:
        ends = [pool.submit(wait, clone) for clone in clones]
        while how_many_wait() < 3:
            time.sleep(0.002)
        store.queue_push("q", "only one")
        assert sorted(end.result(20) or "woken" for end in ends) == ["in vain", "in vain", "woken"]


def asleep_for_a_while():
    """Counts the waiters that have been asleep whenever we looked, 30 times in a row.

    There's no way to ask torch's server who waits.
    """
    seen = []

    def count():
        waiters = [thread for thread in threading.enumerate() if "waiter" in thread.name]
        seen.append(sum(thread_state(thread) == "S" for thread in waiters))
        return min(seen[-30:]) if len(seen) >= 30 else 0

    return count


def thread_state(thread):
    with open(f"/proc/self/task/{thread.native_id}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0]


# wait, time-outs


def test_wait(store):
    assert store.wait([]) is None
    with ThreadPoolExecutor(1) as pool:
        end = pool.submit(store.clone().wait, ["a", "b"])
        store.set("a", "1")
        store.set("b", "2")
        assert end.result(20) is None
    assert store.wait(["a"], timedelta(seconds=1)) is None


def test_wait_in_vain(make):
    """Each within the time that it was given: the store's, the call's own, the one set later."""
    store = make(SHORT)
    fails_in_time(lambda: store.wait(["bad_key"]), 0.3, ANY_TIMEOUT)


def test_wait_with_its_own_timeout(store):
    assert store.timeout == LONG
    fails_in_time(lambda: store.wait(["bad_key"], timedelta(seconds=0.3)), 0.3, ANY_TIMEOUT)


def test_set_timeout(store):
    assert store.timeout == LONG
    store.set_timeout(SHORT)
    assert store.timeout == SHORT
    fails_in_time(lambda: store.wait(["bad_key"]), 0.3, ANY_TIMEOUT)


@pytest.mark.parametrize("module", [dist, stores])
def test_timeout_by_default(module, tmp_path):
    with_none = [
        module.TCPStore("127.0.0.1", 0, is_master=True),
        module.HashStore(),
        module.FileStore(str(tmp_path / "store")),
    ]
    assert [store.timeout for store in with_none] == [timedelta(seconds=300)] * 3


@pytest.mark.parametrize("kind", OURS)
def test_a_timeout_of_zero(makers, kind):
    """It means that there's none; we give up after some weeks all the same."""
    store = getattr(makers, kind)()
    store.set_timeout(timedelta(0))
    assert store.timeout == timedelta(0)
    assert base.Store.seconds(store) == base.FOREVER
    with ThreadPoolExecutor(1) as pool:
        end = pool.submit(store.get, "k")
        store.clone().set("k", "v")
        assert end.result(20) == b"v"


@pytest.mark.parametrize("kind", OURS)
def test_wait_of_a_single_str(makers, kind):
    with pytest.raises(TypeError, match="list of str"):
        getattr(makers, kind)().wait("key")


@pytest.mark.parametrize("kind", OURS)
def test_wrong_arguments(makers, kind):
    store = getattr(makers, kind)()
    for call in (
        lambda: store.set("k", 3),
        lambda: store.set(3, "v"),
        lambda: store.wait(["k"], 3),
        lambda: store.barrier("b", "2"),
    ):
        with pytest.raises(TypeError):
            call()


@pytest.mark.parametrize("kind", OURS)
def test_ctrl_c_ends_a_wait(makers, kind):
    """In the main thread, as a user would; the store is usable afterwards."""
    import signal

    store = getattr(makers, kind)()
    for wait in (lambda: store.get("absent"), lambda: store.queue_pop("absent")):
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
        start = time.monotonic()
        try:
            with pytest.raises(KeyboardInterrupt):
                wait()
        finally:
            signal.signal(signal.SIGALRM, previous)
        assert time.monotonic() - start < 10
        store.set("after", "usable")
        assert store.get("after") == b"usable"


# barrier


def test_barrier(store):
    clones = [store.clone() for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        ends = [pool.submit(clone.barrier, "b", 3) for clone in clones]
        assert [end.result(20) for end in ends] == [None] * 3


def test_barrier_in_vain(make, request):
    if "torchs_prefix" in request.node.name:
        pytest.skip("torch's PrefixStore waits with a time-out of its own, 300 s")
    store = make()
    short = timedelta(seconds=0.3)
    fails_in_time(lambda: store.barrier("b", 2, short), 0.3, ANY_TIMEOUT)


# from C++


@pytest.mark.parametrize("kind", OURS)
def test_all_methods_as_cpp_calls_them(makers, kind):
    """A PrefixStore of torch calls the store below from C++."""
    below = getattr(makers, kind)()
    store = dist.PrefixStore("p", below)
    store.set("k", b"\xff")
    assert store.get("k") == b"\xff"
    assert below.get("p/k") == b"\xff"
    assert store.compare_set("k", b"\xff", "new") == b"new"
    assert store.add("n", 2) == 2
    assert store.check(["k", "n"])
    store.wait(["k"])
    store.wait(["k"], LONG)
    store.append("k", "!")
    store.multi_set(["x", "y"], ["1", b"\xfe"])
    assert store.multi_get(["k", "y"]) == [b"new!", b"\xfe"]
    assert store.has_extended_api() is True
    assert store.num_keys() == below.num_keys()
    assert isinstance(store.clone(), dist.PrefixStore)
    if kind == "our_file":
        with pytest.raises(NotImplementedError):
            store.delete_key("k")
    else:
        assert store.delete_key("k") is True
    store.set_timeout(SHORT)
    assert below.timeout == SHORT
    fails_in_time(lambda: store.get("absent"), 0.3)


@pytest.mark.parametrize("kind", OURS)
def test_use_as_context_and_after_close(makers, kind):
    with getattr(makers, kind)() as store:
        store.set("k", "v")
    store.close()


# lifetime


def test_a_store_lives_as_long_as_the_group_that_stands_on_it():
    def group_of_a_store_that_nobody_keeps():
        import gc

        dist.init_process_group("gloo", store=stores.HashStore(), rank=0, world_size=1)
        gc.collect()
        dist.new_group([0])
        dist.barrier()
        kept = base._held_by_a_group
        top = dist.distributed_c10d._world.pg_map[dist.group.WORLD][1]
        below = top
        while isinstance(below, dist.PrefixStore):
            below = below.underlying_store
        assert kept(below) is not None
        dist.destroy_process_group()
        assert kept(below) is None
        return type(below).__name__

    assert run_ranks(1, group_of_a_store_that_nobody_keeps, backend=None) == ["HashStore"]


def test_a_server_ends_with_the_group_that_stood_on_it():
    def port_is_free_again():
        import gc
        import socket

        store = stores.TCPStore("127.0.0.1", 0, is_master=True)
        port = store.port
        dist.init_process_group("gloo", store=store, rank=0, world_size=1)
        del store
        dist.barrier()
        socket.create_connection(("127.0.0.1", port)).close()
        dist.destroy_process_group()
        gc.collect()
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            return True
        return False

    assert run_ranks(1, port_is_free_again, backend=None) == [True]


# exceptions


def test_exceptions():
    for error in (dist.DistBackendError, dist.DistNetworkError, dist.DistStoreError):
        assert issubclass(error, dist.DistError)
    assert issubclass(dist.DistError, RuntimeError)
    assert issubclass(dist.QueueEmptyError, dist.DistStoreError)


def test_the_lists_of_kinds_are_right():
    assert set(OURS) & set(TCP) == {"our_tcp", "our_client_of_torchs_server"}
    assert len(WITH_QUEUES) == 10
