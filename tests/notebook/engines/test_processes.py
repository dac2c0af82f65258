import pytest

from teachdist import Cluster
from teachdist.notebook import ClusterError
from teachdist.notebook.engines import processes


def test_torch_too_old():
    processes.check_torch("2.14.1+cpu")
    with pytest.raises(ClusterError, match=r"torch 2\.9\.0 is too old, teachdist needs 2\.14"):
        processes.check_torch("2.9.0")


def test_too_little_memory():
    processes.check_memory(4, free=4000)
    with pytest.raises(ClusterError, match="8 ranks need about 1050 MB of memory, 500 MB are"):
        processes.check_memory(8, free=500)


def test_unknown_launcher_names_the_known_ones():
    with pytest.raises(ValueError, match=r"unknown launcher 'nonsense': fork, stock, .*mpi"):
        Cluster(2, launcher="nonsense")


@pytest.mark.parametrize("launcher", ["fork", "stock"])
def test_engines_that_do_not_start_are_reported(monkeypatch, launcher):
    monkeypatch.setattr(processes.launcher, "_ENGINE_ARGS", ["--IPEngine.id=nonsense"])
    with pytest.raises(ClusterError, match=r"only 0 of 1 ranks started; last words: .*nonsense"):
        Cluster(1, launcher=launcher)


def test_last_words():
    assert processes.last_words("a\nValueError: x\n  more\nbye\n\n") == "ValueError: x"
    assert processes.last_words("a\nbye\n") == "bye"
    assert processes.last_words("") == "none"
