import os
import struct

import pytest
import torch.distributed as dist

from teachdist.stores.file_store.journal import Journal, JournalGoneError


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "journal")


def record(key, value):
    return struct.pack("<I", len(key)) + key + struct.pack("<I", len(value)) + value


def write(path, *records, create=True):
    journal = Journal(path)
    with journal.locked(5, exclusive=True, create=create):
        for key, value in records:
            journal.append(key, value)
    return journal


def read(path):
    journal = Journal(path)
    with journal.locked(5, exclusive=False):
        return journal


def test_records(path):
    write(path, (b"/a", b"1"), (b"/b", b""), (b"/a", b"2"), (b"-/b", b""))
    with open(path, "rb") as file:
        assert file.read() == b"".join(
            [record(b"/a", b"1"), record(b"/b", b""), record(b"/a", b"2"), record(b"-/b", b"")]
        )
    assert read(path).values == {b"/a": b"2"}


def test_what_torch_writes(path):
    store = dist.FileStore(path, -1)
    store.set("k", "v")
    assert read(path).values == {b"refcount/": b"1", b"/k": b"v"}


def test_torch_does_not_see_notes(path):
    store = dist.FileStore(path, -1)
    store.set("k", "v")
    journal = Journal(path)
    with journal.locked(5, exclusive=True):
        journal.note(b"joined/x", b"somebody")
    assert store.num_keys() == 2
    assert store.get("k") == b"v"
    assert read(path).notes == {b"joined/x": b"somebody"}


def test_what_others_add_is_replayed(path):
    one, two = write(path, (b"/a", b"1")), write(path, (b"/b", b"2"))
    with one.locked(5, exclusive=False):
        assert one.values == two.values == {b"/a": b"1", b"/b": b"2"}


@pytest.mark.parametrize("kept", range(1, 16))
def test_a_record_cut_off_in_the_middle(path, kept):
    write(path, (b"/a", b"1"))
    with open(path, "ab") as file:
        file.write(record(b"/key", b"value")[:kept])
    assert read(path).values == {b"/a": b"1"}
    write(path, (b"/b", b"2"))
    assert read(path).values == {b"/a": b"1", b"/b": b"2"}
    assert dist.FileStore(path, -1).get("b") == b"2"


def test_the_lock(path):
    journal = write(path, (b"/a", b"1"))
    with (
        Journal(path).locked(5, exclusive=True),
        pytest.raises(TimeoutError, match=r"held for 0\.1 s"),
        journal.locked(0.1, exclusive=False),
    ):
        pass
    with (
        Journal(path).locked(5, exclusive=False),
        Journal(path).locked(5, exclusive=False) as reader,
    ):
        assert reader.values == {b"/a": b"1"}


def test_a_file_that_is_gone(path):
    journal = write(path, (b"/a", b"1"))
    journal.remove()
    journal.remove()
    with pytest.raises(JournalGoneError, match="deleted"), journal.locked(5, exclusive=False):
        pass
    write(path, (b"/another", b"one"))
    with pytest.raises(JournalGoneError, match="replaced"), journal.locked(5, exclusive=False):
        pass


def test_no_file_is_left_open(path):
    before = len(os.listdir("/proc/self/fd"))
    journal = write(path, (b"/a", b"1"))
    with pytest.raises(ZeroDivisionError), journal.locked(5, exclusive=True):
        1 / 0  # noqa: B018
    assert len(os.listdir("/proc/self/fd")) == before
