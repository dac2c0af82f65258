"""The choice is the fastest by the model, the same for equal inputs, and gives its reason."""

import subprocess
import sys

import pytest

from teachdist.collectives import DEFINITIONS, Topology, algorithm, catalog, choose, cost, get
from teachdist.collectives.catalog import remove


@pytest.mark.parametrize("op", DEFINITIONS)
@pytest.mark.parametrize("size", [1, 2, 5, 8])
def test_nothing_in_the_catalogue_is_faster(op, size):
    for nbytes in (0, 1 << 10, 1 << 24):
        chosen = choose(op, nbytes, size, "ethernet")
        price = cost(chosen.name, op, nbytes, size, "ethernet").seconds
        for name in filter(lambda name: get(op, name).serves(size), catalog()[op]):
            assert price <= cost(name, op, nbytes, size, "ethernet").seconds * (1 + 1e-8)


def test_small_data_wants_few_rounds_and_large_data_few_bytes():
    assert choose("all_reduce", 8, 8).name == "doubling"
    assert choose("all_reduce", 1 << 26, 8).name in ("rabenseifner", "bruck")


def test_the_reason_is_given_in_words():
    why = choose("all_reduce", 1000, 8, "loopback").why
    assert why.startswith("doubling: ")
    assert "for 1 KiB on 8 ranks (loopback); next " in why


def test_hosts_matter():
    slow_between = Topology(1e-6, 1e-10, 0, 1e-3, 1e-7)
    hosts = tuple(rank % 3 for rank in range(12))
    assert choose("all_reduce", 1 << 24, 12, slow_between, hosts).name == "two_level"


def test_equal_in_another_process():
    code = (
        "from teachdist.collectives import DEFINITIONS, choose\n"
        "print([tuple(choose(op, n, 6)) for op in DEFINITIONS for n in (0, 999, 10**7)])"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    here = [tuple(choose(op, n, 6)) for op in DEFINITIONS for n in (0, 999, 10**7)]
    assert answer.stdout.strip() == str(here)


def test_own_algorithms_are_not_chosen_unasked():
    def nothing(rank, size):
        return iter(())

    algorithm("all_reduce", "free", when=lambda size: size == 1)(nothing)
    try:
        assert choose("all_reduce", 123, 1, Topology(1, 1, name="fresh")).name != "free"
    finally:
        remove("all_reduce", "free")


def test_wrong_arguments():
    with pytest.raises(ValueError, match="there is no collective 'allreduce'"):
        choose("allreduce", 1, 2)
    with pytest.raises(ValueError, match="got 0 ranks and 1 bytes"):
        choose("all_reduce", 1, 0)
