"""TORCH_DISTRIBUTED_DEBUG on this backend: what torch's documentation says of it holds."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from ddp_example import TwoLinLayerNet
from scenes import play
from torch.distributed import DebugLevel, get_debug_level, set_debug_level
from torch.nn.parallel import DistributedDataParallel

ROOT = Path(__file__).resolve().parents[2]


def at_level(level, scene):
    """A scene whose group is made under a debug level."""

    def inner(rank):
        set_debug_level(level)
        store = dist.PrefixStore("under", dist.distributed_c10d._get_default_store())
        dist.destroy_process_group()
        dist.init_process_group("teachdist", store=store, rank=rank, world_size=WORLD[0])
        try:
            return scene(rank)
        finally:
            set_debug_level(DebugLevel.OFF)

    WORLD = [2]  # noqa: N806  the closure carries it to the ranks
    inner.world = WORLD
    return inner


def detail(scene, n=2, **settings):
    inner = at_level(DebugLevel.DETAIL, scene)
    inner.world[0] = n
    return play(inner, n=n, **settings)


# The level


def test_get_and_set_debug_level():
    assert get_debug_level() == DebugLevel.OFF
    try:
        set_debug_level(DebugLevel.DETAIL)
        assert get_debug_level() == DebugLevel.DETAIL
    finally:
        set_debug_level(DebugLevel.OFF)


def test_set_debug_level_from_env(monkeypatch):
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "INFO")
    assert get_debug_level() == DebugLevel.OFF  # the variable is read when torch is imported
    try:
        dist.set_debug_level_from_env()
        assert get_debug_level() == DebugLevel.INFO
    finally:
        set_debug_level(DebugLevel.OFF)
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "LOUD")
    with pytest.raises(ValueError, match="TORCH_DISTRIBUTED_DEBUG"):
        dist.set_debug_level_from_env()


# DETAIL


def test_detail_changes_no_result():
    def scene(rank):
        x, parts = torch.full((3,), rank + 1.0), [torch.zeros(1), torch.zeros(1)]
        dist.all_reduce(x)
        dist.all_gather(parts, torch.full((1,), float(rank)))
        dist.barrier()
        group = dist.distributed_c10d._get_default_group()
        backend = group._get_backend(torch.device("cpu"))
        return x.tolist(), [p.item() for p in parts], type(backend).__name__

    for outcome in detail(scene):
        assert outcome.error is None, outcome.said
        assert outcome.value[:2] == ([3, 3, 3], [0, 1])
        assert outcome.value[2] == "_ProcessGroupWrapper"


def test_detail_names_both_operations_of_a_mismatch():
    def scene(rank):
        x = torch.ones(10)
        dist.broadcast(x, 0) if rank == 1 else dist.all_reduce(x)

    for outcome in detail(scene):
        assert "Detected mismatch between collectives on ranks" in outcome.said
        assert "OpType=ALLREDUCE" in outcome.said
        assert "OpType=BROADCAST" in outcome.said


def test_detail_names_both_shapes():
    outcomes = detail(lambda rank: dist.all_reduce(torch.randn(10 * (rank + 1))))
    for outcome in outcomes:
        assert isinstance(outcome.error, RuntimeError)
        assert "ALLREDUCE" in outcome.said
        assert "TensorShape=[10]" in outcome.said
        assert "TensorShape=[20]" in outcome.said


def test_without_detail_this_backend_names_both_shapes_too():
    outcomes = play(lambda rank: dist.all_reduce(torch.randn(10 * (rank + 1))))
    for outcome in outcomes:
        assert "rank 1 is in all_reduce(float32[20], SUM)" in outcome.said
        assert "rank 0 is in all_reduce(float32[10], SUM)" in outcome.said


def test_detail_in_a_subgroup():
    def scene(rank):
        group = dist.new_group([0, 1])
        if rank < 2:
            dist.all_reduce(torch.ones(rank + 1), group=group)

    first, second, outside = detail(scene, n=3)
    assert "TensorShape=[1]" in first.said
    assert "TensorShape=[2]" in second.said
    assert outside.error is None


def test_detail_names_a_rank_that_stays_away():
    """By the monitored barrier before each collective. Rank 0 is the one to say it."""

    def scene(rank):
        group = dist.new_group(timeout=__import__("datetime").timedelta(seconds=1))
        if rank != 1:
            dist.all_reduce(torch.ones(1), group=group)

    first, _, third = detail(scene, n=3)
    assert re.search("[Rr]anks? 1 ", first.said)
    assert third.error is not None


# Unused parameters


def unused(rank, level, **settings):
    set_debug_level(level)
    try:
        model = DistributedDataParallel(TwoLinLayerNet(), **settings)
        for _ in range(2):
            model(torch.randn(10, 10))[1].sum().backward()
    finally:
        set_debug_level(DebugLevel.OFF)


@pytest.mark.parametrize("level", [DebugLevel.INFO, DebugLevel.DETAIL])
def test_info_and_detail_name_unused_parameters(level):
    for rank, outcome in enumerate(play(unused, level)):
        opening = (
            "Expected to have finished reduction in the prior iteration before starting a new one"
        )
        assert str(outcome.error).startswith(opening)
        assert "find_unused_parameters=True" in outcome.said
        assert f"did not receive grad for rank {rank}: a.weight" in outcome.said
        assert f"Parameter indices which did not receive grad for rank {rank}: 0" in outcome.said


def test_off_gives_only_the_index():
    for outcome in play(unused, DebugLevel.OFF):
        assert "a.weight" not in outcome.said
        assert "Parameter indices which did not receive grad" in outcome.said
        assert "TORCH_DISTRIBUTED_DEBUG" in outcome.said


def test_find_unused_parameters():
    def scene(rank):
        unused(rank, DebugLevel.OFF, find_unused_parameters=True)

    assert [outcome.error for outcome in play(scene)] == [None, None]


# The documented example, in fresh processes

EXAMPLE = """
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from ddp_example import TwoLinLayerNet


def worker(rank, path):
    dist.init_process_group("teachdist", init_method=f"file://{path}", rank=rank, world_size=2)
    ddp_model = torch.nn.parallel.DistributedDataParallel(TwoLinLayerNet())
    for _ in range(20):
        output = ddp_model(torch.randn(10, 10))
        (output[0] + output[1]).sum().backward()
    print(f"rank {rank} has done 20 iterations", flush=True)
    try:
        dist.all_reduce(torch.randn(10 if rank == 0 else 20))
    except RuntimeError as error:
        print(f"rank {rank} raises {error}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    import sys

    os.environ["TORCH_CPP_LOG_LEVEL"] = "INFO"
    os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
    os.environ["TORCH_SHOW_CPP_STACKTRACES"] = "1"
    mp.spawn(worker, nprocs=2, args=(sys.argv[1],))
"""


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    """What the documented example says on stdout and stderr."""
    directory = tmp_path_factory.mktemp("example")
    script = directory / "example.py"
    script.write_text(EXAMPLE)
    done = subprocess.run(
        [sys.executable, str(script), str(directory / "meeting")],
        env={
            **os.environ,
            "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}",
            "OMP_NUM_THREADS": "1",
        },
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    return done.stdout + done.stderr


def test_the_example_trains(example):
    for rank in range(2):
        assert f"rank {rank} has done 20 iterations" in example


def test_info_logs_the_initialization_of_a_model(example):
    said = example[example.index("DDP Initialized with") :]
    for line in (
        "broadcast_buffers: 1",
        "bucket_cap_bytes: 26214400",
        "find_unused_parameters: 0",
        "gradient_as_bucket_view: 0",
        "is_multi_device_module: 0",
        "iteration: 0",
        "num_parameter_tensors: 2",
        "rank: 0",
        "total_parameter_size_bytes: 440",
        "world_size: 2",
        "bucket_sizes: 440",
        "dtypes: float",
        "module_name: TwoLinLayerNet",
    ):
        assert line in said


def test_detail_logs_run_time_statistics(example):
    for rank in range(2):
        said = example.partition(f"[Rank {rank} / 2] ")[2]
        assert "Training TwoLinLayerNet unused_parameter_size=0" in said
        for what in ("forward compute", "backward compute", "backward comm.", "comm/comp overlap"):
            assert re.search(rf"Avg [^\n]*{re.escape(what)}[^\n]* time: [1-9]\d*", said), what


def test_show_cpp_stacktraces_adds_the_stack_to_a_mismatch(example):
    said = example.partition("raises Detected mismatch between collectives")[2]
    assert "ALLREDUCE" in said
    # "frame #0: ..." or, where torch finds an addr2line for lines of source, "#0 ... from ...".
    assert re.search(r"^(frame )?#\d+:? \S+", said, re.MULTILINE)


def test_detail_logs_every_collective(example):
    assert "Running collective: CollectiveFingerPrint" in example
