"""On, off, or an error."""

import pytest

from teachdist.environment import switch, unread


@pytest.mark.parametrize("default", [True, False])
def test_on_off_or_what_is_usual(monkeypatch, default):
    monkeypatch.delenv("TEACHDIST_SHM", raising=False)
    assert switch("TEACHDIST_SHM", default) is default
    for said, meant in (("1", True), ("0", False), ("", default), (" 1 ", True)):
        monkeypatch.setenv("TEACHDIST_SHM", said)
        assert switch("TEACHDIST_SHM", default) is meant


@pytest.mark.parametrize("said", ["maybe", "true", "2", "-1"])
def test_anything_else_is_an_error(monkeypatch, said):
    monkeypatch.setenv("TEACHDIST_SHM", said)
    with pytest.raises(ValueError, match=f"TEACHDIST_SHM={said}: expected 1"):
        switch("TEACHDIST_SHM", True)


def test_a_name_that_nobody_reads(monkeypatch):
    monkeypatch.setenv("TEACHDIST_ALL_REDUCE", "ring")
    monkeypatch.setenv("TEACHDIST_LOG", "info")
    assert unread(["all_reduce"]) == []
    monkeypatch.setenv("TEACHDIST_ALREDUCE", "ring")
    monkeypatch.setenv("TEACHDIST_QQQQQQQQQ", "1")
    assert unread(["all_reduce"]) == [
        "TEACHDIST_ALREDUCE is set, and nothing reads it; did you mean TEACHDIST_ALL_REDUCE?",
        "TEACHDIST_QQQQQQQQQ is set, and nothing reads it",
    ]
