import pytest

from teachdist.stores.table import NotACounterError, Table, shorten


def test_a_counter_is_what_add_made():
    table = Table()
    assert table.add("n", 3) == 3
    assert table.get("n") == b"3"
    assert table.add("n", -5) == -2
    table.set("n", b"7")
    with pytest.raises(NotACounterError, match="b'7', put there by set"):
        table.add("n", 1)
    assert table.delete("n")
    assert table.add("n", 1) == 1


@pytest.mark.parametrize("make", ["append", "compare_set"])
def test_nor_is_what_the_others_made(make):
    table = Table()
    table.append("k", b"1") if make == "append" else table.compare_set("k", b"", b"1")
    with pytest.raises(NotACounterError):
        table.add("k", 1)


def test_a_counter_stays_as_it_is_when_it_would_overflow():
    table = Table()
    table.add("n", -(1 << 63))
    with pytest.raises(NotACounterError, match="64 bits"):
        table.add("n", -1)
    assert table.get("n") == b"%d" % -(1 << 63)


def test_compare_set():
    table = Table()
    assert table.compare_set("k", b"x", b"y") == b"x"
    assert not table.has("k")
    assert table.compare_set("k", b"", b"y") == b"y"
    assert table.compare_set("k", b"", b"z") == b"y"
    assert table.compare_set("k", b"y", b"z") == b"z"
    table.set("empty", b"")
    assert table.compare_set("empty", b"", b"full") == b"full"


def test_queues_have_names_of_their_own():
    table = Table()
    table.push("q", b"1")
    table.push("q", b"2")
    assert table.has("q")
    assert table.get("q") is None
    assert not table.delete("q")
    assert [table.pop("q"), table.length("q"), table.pop("q"), table.pop("q")] == [
        b"1",
        1,
        b"2",
        None,
    ]
    assert not table.has("q")


def test_shorten():
    assert shorten(b"short") == "b'short'"
    assert shorten(bytes(100), most=2) == r"b'\x00\x00'... (100 bytes)"
