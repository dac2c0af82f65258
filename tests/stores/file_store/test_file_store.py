"""FileStore, on torch's and on ours, and both on one file."""

import json
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

import pytest
import torch.distributed as dist
from ranks import RankDiedError, RankPool, run_ranks
from stores.kinds import SHORT, pid_of_nobody

from teachdist import stores
from teachdist.stores.file_store.journal import Journal
from teachdist.stores.who import me

both = pytest.mark.parametrize("module", [dist, stores], ids=["torchs", "ours"])
pairs = pytest.mark.parametrize(
    ("first", "second"), [(dist, stores), (stores, dist), (stores, stores), (dist, dist)]
)


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "filestore")


@both
@pytest.mark.parametrize("size", [(), (-1,), (2,)])
def test_file_name_and_world_size(module, path, size):
    store = module.FileStore(path, *size)
    store.set("k", "v")
    assert os.path.exists(path)
    assert store.get("k") == b"v"
    assert store.path == path


@both
def test_parameters_by_name(module, path):
    assert module.FileStore(file_name=path, world_size=1).path == path


@pairs
def test_two_stores_on_one_file(path, first, second):
    """The documentation's example, with either's stores."""
    store1 = first.FileStore(path, 2)
    store2 = second.FileStore(path, 2)
    store1.set("first_key", "first_value")
    assert store2.get("first_key") == b"first_value"


@pairs
def test_all_methods_across(path, first, second):
    one, two = first.FileStore(path, 2), second.FileStore(path, 2)
    value = bytes(range(256))
    one.set("k", value)
    assert two.get("k") == value
    assert [one.add("n", 1), two.add("n", 5), one.add("n", -2)] == [1, 6, 4]
    two.append("k", b"!")
    assert one.get("k") == value + b"!"
    assert two.compare_set("new", "", "v") == b"v"
    assert one.compare_set("new", "v", "w") == b"w"
    assert two.compare_set("new", "v", "x") == b"w"
    one.multi_set(["a", "b"], ["1", ""])
    assert two.multi_get(["a", "b"]) == [b"1", b""]
    assert one.check(["a", "new"])
    assert not two.check(["a", "absent"])
    assert one.num_keys() == two.num_keys() == 6
    with ThreadPoolExecutor(1) as pool:
        end = pool.submit(two.wait, ["late"])
        one.set("late", "")
        end.result(20)
        end = pool.submit(one.barrier, "b", 2)
        two.barrier("b", 2)
        end.result(20)


def test_a_key_that_torch_deletes(path):
    torchs, ours = dist.FileStore(path, 2), stores.FileStore(path, 2)
    torchs.set("k", "v")
    assert ours.check(["k"])
    torchs.delete_key("k")
    assert not ours.check(["k"])


def test_a_value_of_64_mib_across(path):
    value = os.urandom(1 << 20) * 64
    torchs, ours = dist.FileStore(path, 2), stores.FileStore(path, 2)
    ours.set("large", value)
    assert torchs.get("large") == value
    torchs.set("other", value[::-1])
    assert ours.get("other") == value[::-1]


@both
def test_keys_survive_the_store(module, path):
    """With a world_size that is not fixed the file stays, and its keys are counted."""
    store = module.FileStore(path, -1)
    store.set("k", "v")
    del store
    assert os.path.exists(path)
    again = module.FileStore(path, -1)
    assert again.get("k") == b"v"
    assert again.num_keys() == 3  # k, and the counters of opened and closed stores


@pairs
def test_the_last_one_out_deletes_the_file(path, first, second):
    one, two = first.FileStore(path, 2), second.FileStore(path, 2)
    one.set("k", "v")
    del one
    assert two.get("k") == b"v"
    del two
    assert not os.path.exists(path)


def test_one_that_died_does_not_keep_the_file(path):
    store = stores.FileStore(path, 2)
    leave_a_dead_member(store)
    store.close()
    assert not os.path.exists(path)


def test_clone_is_one_member_more(path):
    store = stores.FileStore(path, 1)
    clone = store.clone()
    clone.set("k", "v")
    store.close()
    assert clone.get("k") == b"v"
    clone.close()
    assert not os.path.exists(path)


@both
def test_time_out_classes(module, path):
    """DistStoreError, says the documentation; torch's FileStore raises a plain RuntimeError."""
    store = module.FileStore(path, 1)
    store.set_timeout(SHORT)
    with pytest.raises(RuntimeError) as caught:
        store.get("absent")
    assert isinstance(caught.value, dist.DistStoreError) is (module is stores)


def test_delete_key(path):
    """The documentation: raises on a FileStore."""
    with pytest.raises(NotImplementedError, match=r"FileStore\.delete_key\('k'\)"):
        stores.FileStore(path, 1).delete_key("k")


def test_torchs_delete_key_is_always_true(path):
    assert dist.FileStore(path, 1).delete_key("never there") is True


def test_list_keys(path):
    store = stores.FileStore(path, 1)
    store.set("a", "1")
    assert store.list_keys() == ["a"]
    torchs = dist.FileStore(path, 1)
    assert sorted(torchs.list_keys()) == ["a", "efcount/"]  # it cuts the first letter off


# A file of another run


def leave_a_dead_member(store):
    """Note a process that joined, and is gone without having left."""
    gone = {**me().as_dict(), "pid": pid_of_nobody()}
    journal = Journal(store.path)
    with journal.locked(5, exclusive=True):
        journal.note(b"joined/somebody", json.dumps(gone).encode())
        journal.append(b"refcount/", b"%d" % (int(journal.values[b"refcount/"]) + 1))
    return gone


def crash(path, size):
    """Open the store, say something, and be killed."""
    from teachdist import stores

    store = stores.FileStore(path, size)
    store.set("address", "of the dead")
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_crashed_run_is_named(path):
    store = stores.FileStore(path, -1)
    store.set("address", "of the dead")
    gone = leave_a_dead_member(store)
    store.close()
    with pytest.raises(dist.DistStoreError) as caught:
        stores.FileStore(path, 2)
    text = str(caught.value)
    assert path in text
    assert f"pid {gone['pid']} on {gone['host']}" in text
    assert "Delete the file, or use a new path" in text


def test_a_run_that_was_killed_is_noticed(path):
    with RankPool(1, backend=None) as pool:
        assert isinstance(pool.outcomes(crash, path, 2)[0], RankDiedError)
    with pytest.raises(dist.DistStoreError, match="left behind by a run that died"):
        stores.FileStore(path, 2)
    os.unlink(path)
    stores.FileStore(path, 2).set("k", "v")


def test_a_crashed_run_is_only_told_when_the_size_is_not_fixed(path, caplog):
    store = stores.FileStore(path, -1)
    leave_a_dead_member(store)
    store.close()
    assert stores.FileStore(path, -1).num_keys() == 2
    assert "left behind by a run that died" in caplog.text


def test_a_second_launch_is_refused(path):
    store = stores.FileStore(path, 1)
    journal = Journal(path)
    other = {**me().as_dict(), "pid": os.getppid(), "host": "elsewhere"}
    with journal.locked(5, exclusive=True):
        key = next(key for key in journal.notes if key.startswith(b"joined/"))
        journal.note(key, json.dumps(other).encode())  # as if another process had opened it
    with pytest.raises(
        dist.DistStoreError, match=r"process 2 of world_size=1.*still there.*elsewhe"
    ):
        stores.FileStore(path, 1)
    store.close()


def test_one_process_may_open_a_file_more_often(path):
    opened = [stores.FileStore(path, 2) for _ in range(5)]
    opened[0].set("k", "v")
    assert opened[4].get("k") == b"v"


def test_many_opened_by_torch_are_told(path, caplog):
    torchs = [dist.FileStore(path, 1) for _ in range(2)]
    stores.FileStore(path, 1).close()
    assert "opened 2 times by torch's FileStore" in caplog.text
    del torchs


def test_a_file_that_was_exchanged_is_noticed(path):
    store = stores.FileStore(path, -1)
    os.unlink(path)
    with pytest.raises(dist.DistStoreError, match=r"not the one this store was opened on.*deleted"):
        store.set("k", "v")
    other = stores.FileStore(path, -1)
    with pytest.raises(dist.DistStoreError, match="replaced by another one"):
        store.get("k")
    other.close()


def test_a_lock_that_is_held_for_too_long(path):
    store = stores.FileStore(path, -1)
    store.set_timeout(SHORT)
    with Journal(path).locked(5, exclusive=True), pytest.raises(dist.DistStoreError, match="lock"):
        store.set("k", "v")
    store.set("k", "v")


def test_a_store_collected_while_another_has_the_file_locked(path):
    one, two = stores.FileStore(path, -1), stores.FileStore(path, -1)
    with one._writing():
        del two
    for thread in threading.enumerate():
        if thread.name == "teachdist-close":
            thread.join()
    with one._reading() as journal:
        assert journal.values[b"cleanup/"] == b"1"


def test_many_processes_count_together(path):
    def count():
        from teachdist import stores

        store = stores.FileStore(path, -1)
        return [store.add("n", 1) for _ in range(50)]

    assert sorted(chain(*run_ranks(3, count, backend=None))) == list(range(1, 151))


def test_no_users_are_refused(tmp_path):
    with pytest.raises(ValueError, match="FileStore: world_size=0; it is the number of users"):
        stores.FileStore(str(tmp_path / "file"), 0)
