"""Documented corners of DistributedDataParallel, on every backend.

static_graph, the logging data, the debug levels, and the report of unused parameters.
"""

import os
import re
import socket
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from ddp_example import TwoLinLayerNet
from ranks import BACKENDS, RankPool, shared_pool
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

every_backend = pytest.mark.parametrize("backend", BACKENDS)


def logged_name(backend):
    """The name of a backend in DDP's logs: torch calls all registered ones "custom"."""
    return backend if backend == "gloo" else "custom"


class Layers(torch.nn.Module):
    """Two layers, the second possibly checkpointed several times, and one that is never used."""

    def __init__(self, checkpoints=0, reentrant=False, unused=False):
        super().__init__()
        self.a, self.b = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
        self.checkpoints, self.reentrant = checkpoints, reentrant
        if unused:
            self.unused = torch.nn.Linear(4, 4)

    def forward(self, x):
        x = self.a(x)
        for _ in range(self.checkpoints):
            x = checkpoint(self.b, x, use_reentrant=self.reentrant)
        return x if self.checkpoints else self.b(x)


def inside(model, x):
    return model(x).square().mean()


def outside(model, x):
    """A loss that takes a parameter past forward."""
    bare = model.module if isinstance(model, DistributedDataParallel) else model
    return inside(model, x) + bare.unused.weight.square().sum()


def batch(rank, iteration):
    return torch.randn(3, 4, generator=torch.Generator().manual_seed(10 * iteration + rank))


def train(model, loss, ranks):
    """Gradients after each of three iterations, averaged over the batches of these ranks."""
    found = []
    for iteration in range(3):
        model.zero_grad()
        for rank in ranks:
            (loss(model, batch(rank, iteration)) / len(ranks)).backward()
        found.append([None if p.grad is None else p.grad.clone() for p in model.parameters()])
    return found


def static(layers, loss=inside, **options):
    """Train on each rank with static_graph=True and compare with one process that has all data."""
    torch.manual_seed(0)
    wanted = train(Layers(**layers), loss, range(dist.get_world_size()))
    torch.manual_seed(0)
    model = DistributedDataParallel(Layers(**layers), static_graph=True, **options)
    got = train(model, loss, [dist.get_rank()])
    for ours, whole in zip(got, wanted, strict=True):
        for a, b in zip(ours, whole, strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                torch.testing.assert_close(a, b)


def dynamic(layers, loss=inside, **options):
    """The error of the same training without static_graph."""
    try:
        train(DistributedDataParallel(Layers(**layers), **options), loss, [dist.get_rank()])
    except RuntimeError as error:
        return str(error)
    return None


@every_backend
def test_static_graph_gives_the_same_gradients(backend):
    shared_pool(2, backend).run(static, {})


@every_backend
def test_static_graph_trains_with_unused_parameters(backend):
    pool = shared_pool(2, backend)
    pool.run(static, {"unused": True})

    def find_too():
        with pytest.warns(UserWarning, match="You passed find_unused_parameters=true"):
            static({"unused": True}, find_unused_parameters=True)

    pool.run(find_too)
    with RankPool(2, backend) as fresh:
        for error in fresh.run(dynamic, {"unused": True}):
            assert error.startswith("Expected to have finished reduction in the prior iteration")


# What works with static_graph=True, and how it fails without
SUPPORTED = {
    "reentrant backward": ({"checkpoints": 1, "reentrant": True, "unused": True}, inside),
    "checkpointed twice": ({"checkpoints": 2, "reentrant": True}, inside),
    "checkpoints and unused": ({"checkpoints": 2, "reentrant": True, "unused": True}, inside),
    "parameter outside forward": ({"unused": True}, outside),
}


@every_backend
@pytest.mark.parametrize("what", SUPPORTED)
def test_static_graph_supports(backend, what):
    layers, loss = SUPPORTED[what]
    shared_pool(2, backend).run(static, layers, loss)
    with RankPool(2, backend) as fresh:
        for error in fresh.run(dynamic, layers, loss, find_unused_parameters=True):
            assert error.startswith("Expected to mark a variable ready only once")


@every_backend
def test_reentrant_backward_works_without_if_nothing_is_unused(backend):
    layers = {"checkpoints": 1, "reentrant": True}
    assert shared_pool(2, backend).run(dynamic, layers) == [None, None]


@every_backend
def test_static_graph_does_not_follow_a_graph_that_changes(backend):
    class Changing(Layers):
        later = False

        def forward(self, x):
            return self.a(x) if self.later else super().forward(x)

    def change():
        model = DistributedDataParallel(Changing(), static_graph=True)
        for iteration in range(3):
            model.module.later = iteration > 0
            inside(model, batch(0, iteration)).backward()

    with RankPool(2, backend) as pool, pytest.raises(RuntimeError, match="graph"):
        pool.run(change)


@every_backend
def test_static_graph_spares_the_search_for_unused_parameters(backend):
    def collectives(**options):
        """How many collectives an iteration makes once buckets have been settled."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = DistributedDataParallel(Layers(unused=True), **options)
            counts = []
            for iteration in range(5):
                before = dist.group.WORLD._get_sequence_number_for_group()
                inside(model, batch(0, iteration)).backward()
                counts.append(dist.group.WORLD._get_sequence_number_for_group() - before)
        return counts[-1]

    def both():
        return collectives(static_graph=True), collectives(find_unused_parameters=True)

    assert shared_pool(2, backend).run(both) == [(1, 2)] * 2


def test_parameters_stay_equal_though_nobody_sends_them():
    """Each rank steps with an optimizer of its own; only averaged gradients travel."""

    def trained():
        import teachdist

        rank = dist.get_rank()
        torch.manual_seed(0)
        model = DistributedDataParallel(Layers())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        start = [p.detach().clone() for p in model.parameters()]

        def train(iterations):
            for iteration in iterations:
                optimizer.zero_grad()
                inside(model, batch(rank, iteration)).backward()
                optimizer.step()

        train(range(2))  # in these DDP settles its buckets, and broadcasts their sizes once
        with teachdist.trace() as seen:
            train(range(2, 6))
        assert not any(torch.equal(p, q) for p, q in zip(start, model.parameters(), strict=True))
        numbers = torch.cat([p.detach().flatten() for p in model.parameters()])
        return {call.op for call in seen.calls}, numbers.numpy().tobytes()

    (ops, ours), (_, theirs) = shared_pool(2, "teachdist").run(trained)
    assert ops == {"all_reduce"}
    assert ours == theirs


@every_backend
def test_logging_data(backend):
    def log():
        model = DistributedDataParallel(TwoLinLayerNet())
        for _ in range(20):
            sum(output.sum() for output in model(torch.randn(10, 10))).backward()
        return model._get_ddp_logging_data()

    for rank, data in enumerate(shared_pool(2, backend).run(log)):
        assert data["rank"] == rank
        assert data["world_size"] == 2
        assert data["module_name"] == "TwoLinLayerNet"
        assert data["iteration"] == 10  # the last one that was sampled
        assert data["total_parameter_size_bytes"] == 440
        assert data["backend_name"] == logged_name(backend)
        assert data.get("can_set_static_graph") is None  # written when the model goes, too late


# Debug levels


UNUSED = (
    "Expected to have finished reduction in the prior iteration before starting a new one. "
    "This error indicates that your module has parameters that were not used in producing loss. "
    "You can enable unused parameter detection by passing the keyword argument "
    "`find_unused_parameters=True`"
)


@every_backend
@pytest.mark.parametrize("level", ["OFF", "INFO", "DETAIL"])
def test_unused_parameters_are_reported(backend, level):
    if (backend, level) == ("gloo", "DETAIL"):
        pytest.skip("DDP on gloo crashes the process under DETAIL")

    def example():
        os.environ["TORCH_DISTRIBUTED_DEBUG"] = level
        dist.set_debug_level_from_env()
        path = Path(os.environ["RANKS_DIRECTORY"], "store")
        rank = int(os.environ["RANK"])
        dist.init_process_group(
            backend, store=dist.FileStore(str(path), 2), rank=rank, world_size=2
        )
        model = DistributedDataParallel(TwoLinLayerNet())
        with pytest.raises(RuntimeError) as caught:  # noqa: PT012
            for _ in range(20):
                model(torch.randn(10, 10))[1].sum().backward()
        return str(caught.value)

    with RankPool(2, backend=None) as pool:
        for rank, text in enumerate(pool.run(example)):
            assert text.startswith(UNUSED)
            assert "making sure all `forward` function outputs participate in calculating" in text
            assert "return value of `forward` of your module when reporting this issue" in text
            if level == "OFF":
                assert f"Parameter indices which did not receive grad for rank {rank}: 0" in text
                assert "a.weight" not in text
            else:
                assert f"Parameters which did not receive grad for rank {rank}: a.weight" in text
                assert re.search(rf"indices which did not receive grad for rank {rank}: 0", text)


@every_backend
def test_find_unused_parameters_lets_an_output_go(backend):
    def use():
        model = DistributedDataParallel(TwoLinLayerNet(), find_unused_parameters=True)
        for _ in range(3):
            model(torch.randn(10, 10))[1].sum().backward()

    shared_pool(2, backend).run(use)


@pytest.mark.parametrize(
    ("backend", "level"), [("gloo", "INFO"), *((name, "DETAIL") for name in BACKENDS[1:])]
)
def test_documented_debug_example(backend, level):
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    env = os.environ | {
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": str(port),
        "TORCH_CPP_LOG_LEVEL": "INFO",
        "TORCH_DISTRIBUTED_DEBUG": level,
        "OMP_NUM_THREADS": "1",
    }
    script = Path(__file__).with_name("ddp_example.py")
    done = subprocess.run(
        [sys.executable, str(script), backend], env=env, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    for rank in (0, 1):
        assert f"rank {rank} has trained" in done.stdout
    log = done.stderr
    assert "[Rank 0]: DDP Initialized with:" in log
    for field in (
        "broadcast_buffers: 1", "bucket_cap_bytes: 26214400", "find_unused_parameters: 0",
        "gradient_as_bucket_view: 0", "is_multi_device_module: 0", "iteration: 0",
        "num_parameter_tensors: 2", "rank: 0", "total_parameter_size_bytes: 440", "world_size: 2",
        f"backend_name: {logged_name(backend)}", "bucket_sizes: 440", "dtypes: float",
        "master_addr: localhost", f"master_port: {port}", "module_name: TwoLinLayerNet",
        f"torch_distributed_debug: {level}",
    ):  # fmt: skip
        assert field in log, field
    if level == "DETAIL":
        for rank in (0, 1):
            pattern = rf"\[Rank {rank} / 2\].* Training TwoLinLayerNet unused_parameter_size=0"
            assert re.search(pattern, log)
        for average in ("forward compute", "backward compute", "backward comm.", "comp overlap"):
            assert re.search(rf"{average} time: \d+", log), average


@every_backend
@pytest.mark.parametrize("subgroup", [False, True])
def test_detail_names_what_does_not_match(backend, subgroup):
    def mismatch(what):
        os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
        dist.set_debug_level_from_env()
        path = Path(os.environ["RANKS_DIRECTORY"], "store")
        rank = int(os.environ["RANK"])
        dist.init_process_group(
            backend, store=dist.FileStore(str(path), 2), rank=rank, world_size=2
        )
        assert dist.get_debug_level() == dist.DebugLevel.DETAIL
        group = dist.new_group([0, 1]) if subgroup else None
        ones = torch.ones(3)
        dist.all_reduce(ones, group=group)
        assert ones.tolist() == [2, 2, 2]
        with pytest.raises(RuntimeError) as caught:  # noqa: PT012
            if what == "shape":
                dist.all_reduce(torch.randn(10 if rank == 0 else 20), group=group)
            elif rank == 0:
                dist.all_reduce(ones, group=group)
            else:
                dist.broadcast(ones, 0, group=group)
        return str(caught.value)

    for what, names in (
        ("shape", ("ALLREDUCE", "10", "20")),
        ("operation", ("ALLREDUCE", "BROADCAST")),
    ):
        with RankPool(2, backend=None) as pool:
            for text in pool.run(mismatch, what):
                for name in names:
                    assert name in text.upper().replace("_", "")
