"""Real training on an algorithm of one's own: a trace shows that its rounds are what ran."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from ranks import shared_pool

import teachdist
from teachdist.backend import communicators
from teachdist.backend.execution.options import Options
from teachdist.backend.execution.selection import Selection, given_topology
from teachdist.collectives import Recv, Reduce, Send, get
from teachdist.links.collective.exchange import SEGMENT, SOCKET_SEGMENT, WIDE_SEGMENT

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples" / "own_algorithm"


def through_the_middle(rank, size):
    """Everybody sends to the middle rank, which adds up and answers: in nobody's catalogue."""
    middle = size // 2
    others = [peer for peer in range(size) if peer != middle]
    if rank == middle:
        yield tuple(Reduce(peer, 0) for peer in others)
        yield tuple(Send(peer, 0) for peer in others)
    else:
        yield Send(middle, 0)
        yield Recv(middle, 0)


def trained(how):
    """One step of DDP under a trace: the calls, and how far gradients are from the average."""
    import teachdist
    from teachdist.collectives.catalog import remove

    rank, size = dist.get_rank(), dist.get_world_size()
    teachdist.algorithm("all_reduce", "middle")(through_the_middle)
    options = {"pg_options": teachdist.Options(all_reduce="middle")} if how == "options" else {}
    if how == "environment":
        os.environ["TEACHDIST_ALL_REDUCE"] = "middle"
    group = dist.new_group(**options)
    torch.manual_seed(0)
    bare = torch.nn.Linear(4, 3)
    model = torch.nn.parallel.DistributedDataParallel(bare, process_group=group)
    inputs = torch.randn(size, 5, 4)
    chosen = {"all_reduce": "middle"} if how == "use" else {}
    try:
        with teachdist.use(**chosen), teachdist.trace() as record:
            model(inputs[rank]).square().mean().backward()
        wanted = [torch.zeros_like(p) for p in bare.parameters()]
        for one in inputs:
            mean = bare(one).square().mean()
            for total, grad in zip(
                wanted, torch.autograd.grad(mean, list(bare.parameters())), strict=True
            ):
                total += grad / size
        pairs = zip(bare.parameters(), wanted, strict=True)
        off = max((p.grad - w).abs().max().item() for p, w in pairs)
        return record.calls, off
    finally:
        os.environ.pop("TEACHDIST_ALL_REDUCE", None)
        dist.destroy_process_group(group)
        remove("all_reduce", "middle")


@pytest.mark.parametrize("how", ["use", "options", "environment"])
def test_ddp_trains_on_an_own_algorithm(how):
    for rank, (calls, off) in enumerate(shared_pool(3, "teachdist").run(trained, how)):
        reductions = [call for call in calls if call.op == "all_reduce"]
        assert reductions
        for call in reductions:
            assert call.algorithm == "middle"
            for step, actions in zip(call.rounds, list(through_the_middle(rank, 3)), strict=True):
                actions = (actions,) if isinstance(actions, (Send, Recv)) else actions
                sends = {a.to for a in actions if isinstance(a, Send)}
                assert set(step.sends) == sends
                assert set(step.takes) == {a.source for a in actions if not isinstance(a, Send)}
        assert off < 1e-6


def test_without_being_asked_for_it_is_not_used():
    for calls, off in shared_pool(3, "teachdist").run(trained, "not at all"):
        assert all(call.algorithm != "middle" for call in calls)
        assert off < 1e-6


def test_an_unchanged_script_under_torchrun_trains_on_a_file_that_the_environment_names():
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", str(EXAMPLE / "train.py")]
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "TEACHDIST_ALGORITHMS": str(EXAMPLE / "mine.py"),
        "TEACHDIST_ALL_REDUCE": "mine",
        "TEACHDIST_LOG": "debug",
    }
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr
    # Two ranks write at once: a line may follow the other without a break.
    assert sorted(re.findall(r"rank \d of 2", done.stdout)) == ["rank 0 of 2", "rank 1 of 2"]
    reductions = [line for line in done.stderr.splitlines() if "all_reduce(" in line]
    assert len(reductions) >= 2 * 40
    assert all("by mine" in line for line in reductions)


def test_the_example_is_an_algorithm_for_any_number_of_ranks():
    import runpy

    from teachdist.collectives.catalog import remove

    runpy.run_path(str(EXAMPLE / "mine.py"))
    try:
        assert get("all_reduce", "mine").served == "any number of ranks"
    finally:
        remove("all_reduce", "mine")


@pytest.mark.parametrize(
    ("wanted", "hosts", "narrow", "wide"),
    [
        ("1", (0, 0, 0, 0), SEGMENT, WIDE_SEGMENT),
        ("0", (0, 0, 0, 0), SOCKET_SEGMENT, SOCKET_SEGMENT),
        ("1", (0, 0, 1, 1), SEGMENT, WIDE_SEGMENT),
        ("1", (0, 1, 2, 3), SOCKET_SEGMENT, SOCKET_SEGMENT),  # nobody to share memory with
    ],
)
def test_all_ranks_follow_rank_0_in_sharing_memory(monkeypatch, wanted, hosts, narrow, wide):
    """What fits into a turn depends on it, so a rank must not follow its own environment."""
    store = dist.HashStore()
    monkeypatch.setenv("TEACHDIST_SHM", wanted)
    Selection(store, 0, 4, Options())
    monkeypatch.setenv("TEACHDIST_SHM", "10"[int(wanted)])
    other = Selection(store, 1, 4, Options())
    assert other.memory is (wanted == "1")
    assert other.segment("broadcast", hosts) == narrow
    assert other.segment("all_reduce", hosts) == wide


def test_a_wish_that_is_none(monkeypatch):
    monkeypatch.setenv("TEACHDIST_SHM", "maybe")
    with pytest.raises(ValueError, match="TEACHDIST_SHM=maybe: expected 1"):
        Selection(dist.HashStore(), 0, 4, Options())


def test_one_rank_wants_sockets_and_another_memory():
    """Rank 0 decides; large data goes through, in whichever pieces."""

    def job():
        os.environ["TEACHDIST_SHM"] = str(int(dist.get_rank() != 0))
        try:
            group = dist.new_group(backend="teachdist")
            x = torch.ones(5 << 18)
            dist.all_reduce(x, group=group)
            (communicator,) = [m for m in communicators() if m.name == group.group_name]
            kinds = {type(link).__name__ for link in communicator.links.kinds.values()}
        finally:
            del os.environ["TEACHDIST_SHM"]
        return x.unique().tolist(), kinds

    assert shared_pool(3, "teachdist").run(job) == [([3.0], {"TcpLinks"})] * 3


def test_use_holds_for_asynchronous_calls_made_inside_and_for_no_others():
    """They run later, on a thread, when the block may be over: also the first calls of a group."""

    def job():
        group = dist.new_group(backend="teachdist")
        x = torch.ones(5 << 18)
        with teachdist.trace() as record:
            works = [dist.all_reduce(x, group=group, async_op=True)]
            with teachdist.use(all_reduce="ring"):
                works.append(dist.all_reduce(x, group=group, async_op=True))
            works.append(dist.all_reduce(x, group=group, async_op=True))
            for work in works:
                work.wait()
            with teachdist.use(all_reduce="doubling"):
                later = dist.all_reduce(x, group=group, async_op=True)
            later.wait()
        return [call.algorithm for call in record.calls], x.unique().tolist()

    for chosen, total in shared_pool(4, "teachdist").run(job):
        assert chosen == ["two_shot", "ring", "two_shot", "doubling"]
        assert total == [256.0]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("ethernett", "neither a preset .*ethernet, .* nor a file that can be read: No such file"),
        ("/nowhere/links.json", "nor a file that can be read"),
        (str(Path(__file__)), "not a file of `teachdist calibrate`"),
    ],
)
def test_a_topology_that_is_none(monkeypatch, given, words):
    monkeypatch.setenv("TEACHDIST_TOPOLOGY", given)
    with pytest.raises(ValueError, match=f"TEACHDIST_TOPOLOGY={given}: .*{words}"):
        given_topology()
