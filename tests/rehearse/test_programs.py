"""The nine programs on virtual ranks: the values of one process."""

import pytest
from programs import difference, program, run

CLOSE = 1e-6


@pytest.mark.parametrize("ranks", [4, 5])
def test_collectives(ranks):
    results = run("collectives", ranks=ranks).results
    assert all(result.tolist() == [ranks * (ranks - 1) / 2] * 4 for result in results)


@pytest.mark.parametrize("ranks", [4, 64])
def test_a_ring_of_sends(ranks):
    assert len(run("ring", ranks=ranks).results) == ranks


@pytest.mark.parametrize(
    ("name", "ranks", "momentum"),
    [("ddp", 4, 0.0), ("ddp", 64, 0.0), ("zero", 4, 0.9), ("fsdp2", 4, 0.0), ("hybrid", 8, 0.0)],
)
def test_training(name, ranks, momentum):
    expected = program("model").alone(ranks, momentum=momentum)
    assert difference(run(name, ranks=ranks).results, expected) < CLOSE


def test_tensor_parallel():
    expected = program("model").alone(1)
    assert difference(run("tensor_parallel", ranks=4).results, expected) < CLOSE


@pytest.mark.parametrize("interleaved", [False, True])
def test_a_pipeline(interleaved):
    expected = program("pipeline").alone(4, interleaved)
    assert difference(run("pipeline", interleaved, ranks=4).results, expected) < CLOSE


def test_a_checkpoint_is_loaded_by_another_number_of_ranks(tmp_path):
    saved = run("checkpoint", str(tmp_path), True, ranks=4).results[0]
    assert difference(run("checkpoint", str(tmp_path), False, ranks=3).results, saved) == 0
