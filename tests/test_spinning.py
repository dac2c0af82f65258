"""Looking for a moment before sleeping."""

from types import SimpleNamespace

from teachdist import spinning


def test_a_yield_that_took_long_is_not_soon_repeated(monkeypatch):
    now, yields = [100.0], []

    def give_way():
        yields.append(now[0])
        now[0] += 0.01  # the system let another process run for so long

    monkeypatch.setattr(spinning, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(spinning, "give_way", give_way)
    monkeypatch.setattr(spinning, "_busy_until", 0.0)
    assert not spinning.spin(lambda: False)
    assert yields == [100.0]
    now[0] += spinning.PENANCE * 0.01 - 0.001
    assert not spinning.spin(lambda: True)  # it does not even look: whoever waits sleeps at once
    assert yields == [100.0]
    now[0] += 0.002
    assert spinning.spin(lambda: True)
    assert len(yields) == 2


def test_what_was_seen_comes_back():
    seen = iter([[], [], [(3, 1)]])
    assert spinning.spin(lambda: next(seen)) == [(3, 1)]
