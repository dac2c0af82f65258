import pytest
import torch.distributed as dist

from stores.kinds import SHORT
from teachdist import stores

both = pytest.mark.parametrize("module", [dist, stores], ids=["torchs", "ours"])


@both
def test_prefixes_keep_keys_apart(module):
    below = module.HashStore()
    a, b = module.PrefixStore("a", below), module.PrefixStore("b", below)
    a.set("k", "1")
    b.set("k", "2")
    assert a.get("k") == b"1"
    assert b.get("k") == b"2"
    assert below.get("a/k") == b"1"


@both
def test_it_wraps_each_of_the_three(module, tmp_path):
    for below in (
        module.TCPStore("127.0.0.1", 0, is_master=True),
        module.FileStore(str(tmp_path / "store"), 1),
        module.HashStore(),
    ):
        module.PrefixStore("p", below).set("k", "v")
        assert below.get("p/k") == b"v"


@both
def test_parameters_by_name(module):
    below = module.HashStore()
    assert module.PrefixStore(prefix="p", store=below).underlying_store is below


@both
def test_underlying_store(module):
    below = module.HashStore()
    assert module.PrefixStore("p", below).underlying_store is below


@both
def test_nesting(module):
    below = module.HashStore()
    outer = module.PrefixStore("outer", module.PrefixStore("inner", below))
    outer.set("k", "v")
    assert below.list_keys() == ["inner/outer/k"]
    assert outer.list_keys() == ["k"]
    assert outer.underlying_store.underlying_store is below


@pytest.mark.parametrize(("outer", "inner"), [(dist, stores), (stores, dist)])
def test_torchs_and_ours_in_each_other(outer, inner):
    below = inner.HashStore()
    store = outer.PrefixStore("p", below)
    store.set("k", "v")
    assert below.get("p/k") == b"v"
    assert store.add("n", 2) == 2
    assert store.num_keys() == 2


@both
def test_the_time_out_is_that_of_the_store_below(module):
    below = module.HashStore()
    store = module.PrefixStore("p", below)
    store.set_timeout(SHORT)
    assert store.timeout == below.timeout == SHORT


def test_only_keys_of_the_prefix_are_listed():
    below = stores.HashStore()
    store = stores.PrefixStore("p", below)
    below.set("other", "1")
    below.set("pk", "1")
    store.set("k", "v")
    assert store.list_keys() == ["k"]
    assert store.num_keys() == 3


@pytest.mark.parametrize("none", [None, 3, "store"])
def test_what_is_no_store_is_refused(none):
    with pytest.raises(ValueError, match="PrefixStore: store must be a Store, got"):
        stores.PrefixStore("p", none)


def test_the_store_below_all_prefixes():
    below = stores.HashStore()
    nested = stores.PrefixStore("a", stores.PrefixStore("b", below))
    assert nested._underlying_non_prefix_store is below
    torchs = dist.HashStore()
    mixed = stores.PrefixStore("a", dist.PrefixStore("b", torchs))
    assert type(mixed._underlying_non_prefix_store) is dist.HashStore


class Written(dist.Store):
    """A store in Python that keeps what it was given."""

    def __init__(self):
        super().__init__()
        self.given = []

    def set(self, key, value):
        self.given.append(value)

    def append(self, key, value):
        self.given.append(value)

    def compare_set(self, key, expected, desired):
        self.given += [expected, desired]
        return desired


def test_a_store_in_python_gets_bytes():
    below = Written()
    store = stores.PrefixStore("p", below)
    store.set("k", "v")
    store.append("k", "w")
    store.compare_set("k", "", "x")
    assert below.given == [b"v", b"w", b"", b"x"]
