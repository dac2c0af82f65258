from teachdist.stores.waits import Waits


def test_all_keys_are_waited_for():
    waits = Waits()
    waits.open("client", ["a", "b", "a"])
    assert waits.appeared("a") == []
    assert waits.appeared("other") == []
    assert waits.is_open("client")
    assert waits.appeared("b") == ["client"]
    assert not waits.is_open("client")
    assert waits.appeared("b") == []


def test_a_key_wakes_all_and_a_push_wakes_the_first():
    waits = Waits()
    for client in (1, 2, 3):
        waits.open(client, ["k"])
    assert waits.pushed("k") == [1]
    assert waits.pushed("k") == [2]
    waits.open(1, ["k"])
    assert waits.appeared("k") == [3, 1]
    assert waits.pushed("k") == []


def test_a_turn_is_taken_once():
    waits = Waits()
    waits.open("client", ["q"])
    waits.pushed("q")
    assert waits.has_turn("client")
    assert waits.take_turn("client") == "q"
    assert waits.take_turn("client") is None
    assert not waits.has_turn("client")


def test_a_closed_wait_is_forgotten():
    waits = Waits()
    waits.open("client", ["a", "b"])
    waits.close("client")
    waits.close("client")
    assert waits.appeared("a") == []
    assert waits.report() == []


def test_a_new_wait_takes_the_place_of_the_old_one():
    waits = Waits()
    waits.open("client", ["a"])
    waits.open("client", ["b"])
    assert waits.appeared("a") == []
    assert waits.appeared("b") == ["client"]


def test_report():
    waits = Waits()
    waits.open("client", ["b", "a", "c"])
    waits.appeared("c")
    [(client, keys, seconds)] = waits.report()
    assert (client, keys) == ("client", ["a", "b"])
    assert 0 <= seconds < 20
