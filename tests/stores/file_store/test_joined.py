import dataclasses
import json

import pytest
from stores.kinds import pid_of_nobody

from teachdist.stores.file_store.joined import Members, OtherRunError
from teachdist.stores.file_store.journal import Journal
from teachdist.stores.who import me


@pytest.fixture
def journal(tmp_path):
    journal = Journal(str(tmp_path / "journal"))
    with journal.locked(5, exclusive=True, create=True):
        yield journal


def join(journal, name, **changes):
    process = dataclasses.replace(me(), **changes)
    journal.note(b"joined/" + name, json.dumps(process.as_dict()).encode())


def test_torchs_counters_go_on(journal):
    one, two = Members(journal, 2), Members(journal, 2)
    assert journal.values == {b"refcount/": b"2"}
    assert not one.leave(journal)
    assert journal.values == {b"refcount/": b"1", b"cleanup/": b"1"}
    assert two.leave(journal)


def test_without_a_size_nobody_is_the_last(journal):
    assert not Members(journal, -1).leave(journal)


def test_who_is_elsewhere_counts_as_alive(journal):
    join(journal, b"x", host="elsewhere")
    Members(journal, 2)


def test_all_dead(journal):
    join(journal, b"x", pid=pid_of_nobody())
    with pytest.raises(OtherRunError, match="died"):
        Members(journal, 2)


def test_one_dead_of_several(journal):
    join(journal, b"x", pid=pid_of_nobody())
    join(journal, b"y", host="elsewhere")
    members = Members(journal, 3)
    assert not members.leave(journal)


def test_one_too_many(journal):
    join(journal, b"x", host="elsewhere")
    join(journal, b"y", host="elsewhere", pid=1)
    journal.note(b"left/x", b"")
    with pytest.raises(
        OtherRunError, match=r"process 3 of world_size=2.*still there.*pid 1 on else"
    ):
        Members(journal, 2)
    journal.note(b"left/y", b"")
    with pytest.raises(OtherRunError, match="all have left"):
        Members(journal, 2)
    Members(journal, 3)
