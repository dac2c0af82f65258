import copy
import inspect
import itertools
import os
import pickle
import types

import pytest
import torch
import torch.distributed as dist
from ranks import BACKENDS, run_ranks, shared_pool
from torch.distributed.device_mesh import init_device_mesh as torch_init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

from teachdist.mesh import DeviceMesh, init_device_mesh

every_backend = pytest.mark.parametrize("backend", BACKENDS)
both_meshes = pytest.mark.parametrize("init", [init_device_mesh, torch_init_device_mesh])


# The documented examples


@every_backend
def test_documented_sums_and_local_ranks(backend):
    def example():
        mesh = DeviceMesh(device_type="cpu", mesh=[[0, 1, 2, 3], [4, 5, 6, 7]])
        sums = []
        for dim in (0, 1):
            x = torch.tensor([float(mesh.get_rank())])
            dist.all_reduce(x, group=mesh.get_group(dim))
            sums.append(x.item())
        local = [mesh.get_local_rank(mesh_dim=0), mesh.get_local_rank(mesh_dim=1)]
        return sums, local, mesh.get_coordinate()

    results = shared_pool(8, backend).run(example)
    assert [sums for sums, _, _ in results] == [
        [4, 6], [6, 6], [8, 6], [10, 6], [4, 22], [6, 22], [8, 22], [10, 22],
    ]  # fmt: skip
    assert [local[0] for _, local, _ in results] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert [local[1] for _, local, _ in results] == [0, 1, 2, 3, 0, 1, 2, 3]
    assert results[6][2] == [1, 2]


@every_backend
def test_documented_init_device_mesh(backend):
    def example():
        mesh_1d = init_device_mesh("cpu", mesh_shape=(8,))
        mesh_2d = init_device_mesh("cpu", mesh_shape=(2, 4), mesh_dim_names=("dp", "tp"))
        assert mesh_1d.mesh.tolist() == list(range(8))
        assert mesh_1d.get_group() is dist.group.WORLD
        assert mesh_2d.mesh.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
        assert mesh_2d.mesh_dim_names == ("dp", "tp")
        assert mesh_2d.get_group("tp") is mesh_2d.get_group(1)
        assert mesh_2d.get_all_groups() == [mesh_2d.get_group(0), mesh_2d.get_group(1)]
        return mesh_2d.get_coordinate(), mesh_2d.get_rank() == dist.get_rank()

    results = shared_pool(8, backend).run(example)
    assert results == [([rank // 4, rank % 4], True) for rank in range(8)]


def test_initialises_the_process_group_from_the_environment():
    def example():
        before = dist.is_initialized()
        mesh = init_device_mesh("cpu", (2,))
        x = torch.ones(1)
        dist.all_reduce(x, group=mesh.get_group())
        return before, dist.is_initialized(), x.item()

    assert run_ranks(2, example, backend=None) == [(False, True, 2)] * 2


# Ranks that disagree


@every_backend
def test_different_meshes_are_an_error_that_shows_them(backend):
    def disagree():
        shape = (4, 1) if dist.get_rank() == 2 else (2, 2)
        with pytest.raises(RuntimeError) as caught:
            init_device_mesh("cpu", shape, mesh_dim_names=("dp", "tp"))
        return str(caught.value)

    for text in shared_pool(4, backend).run(disagree):
        assert "ranks 0, 1, 3: DeviceMesh((dp=2, tp=2)" in text
        assert "rank 2: DeviceMesh((dp=4, tp=1)" in text
        assert "Every rank has to ask for the same" in text


def test_different_ranks_or_backends_are_an_error():
    def disagree(first, second):
        mesh, override = (first, second)[dist.get_rank()]
        with pytest.raises(RuntimeError, match="the ranks describe different meshes"):
            DeviceMesh("cpu", mesh, backend_override=override)

    pool = shared_pool(2)
    pool.run(disagree, ([0, 1], None), ([1, 0], None))
    pool.run(disagree, ([0, 1], None), ([0, 1], {0: "gloo"}))


@every_backend
def test_different_flattening_is_an_error_on_all_ranks_of_the_new_group(backend):
    def disagree():
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        name = "mine" if dist.get_rank() == 3 else "ours"
        with pytest.raises(RuntimeError, match=r"rank 3: flatten .* to 'mine'"):
            mesh.flatten(name)

    shared_pool(4, backend).run(disagree)


def test_different_unflattening_is_an_error():
    def disagree():
        mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("w",))
        sizes = (4, 1) if dist.get_rank() == 1 else (2, 2)
        with pytest.raises(RuntimeError, match=r"rank 1: unflatten .* to \(4, 1\)"):
            mesh.unflatten("w", sizes, ("dp", "tp"))

    shared_pool(4).run(disagree)


# Groups


@every_backend
def test_each_rank_makes_one_group_per_dimension(backend):
    def count():
        made, original = [], dist.new_group

        def counting(ranks, *args, **kwargs):
            made.append(ranks)
            return original(ranks, *args, **kwargs)

        dist.new_group = counting
        try:
            mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
            mesh["dp"], mesh["tp"]
            two_dims = len(made)
            init_device_mesh("cpu", (4,))
            world = len(made) - two_dims
            mesh.flatten()
        finally:
            dist.new_group = original
        return two_dims, world, [dist.get_rank() in ranks for ranks in made]

    assert shared_pool(4, backend).run(count) == [(2, 0, [True, True])] * 4


@every_backend
def test_flattened_and_unflattened_groups_communicate(backend):
    def sums():
        mesh = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("dp", "cp", "tp"))
        flat = mesh["dp", "tp"].flatten()
        split = flat.unflatten("dp_tp", (2, 2), ("a", "b"))
        found = []
        for group in (flat.get_group(), mesh.get_group("dp_tp"), *split.get_all_groups()):
            x = torch.tensor([float(dist.get_rank())])
            dist.all_reduce(x, group=group)
            found.append(x.item())
        return found

    results = shared_pool(8, backend).run(sums)
    assert results[0] == [0 + 1 + 4 + 5, 10, 0 + 4, 0 + 1]
    assert results[7] == [2 + 3 + 6 + 7, 18, 3 + 7, 6 + 7]


@every_backend
def test_a_rank_outside_gets_defined_answers(backend):
    def outside():
        mesh = DeviceMesh("cpu", [[0, 1], [2, 3]], mesh_dim_names=("dp", "tp"))
        flat = mesh.flatten()
        later = dist.new_group([0, 4])  # torch's numbering of groups is still in step
        x = torch.tensor([1.0])
        dist.all_reduce(x, group=later)
        if dist.get_rank() < 4:
            return mesh.get_coordinate(), mesh["tp"].mesh.tolist(), x.item()
        outside = r"rank 4 is not in DeviceMesh\(.*, whose ranks are .*0.*3.*get_coordinate\(\)"
        for asked in (
            lambda: mesh.get_group("dp"),
            mesh["dp"].get_group,
            flat.get_group,
            mesh.get_all_groups,
        ):
            with pytest.raises(RuntimeError, match=outside):
                asked()
        assert mesh.get_local_rank("dp") == mesh["dp"].get_local_rank() == -1
        assert mesh["tp"].get_coordinate() is None
        assert mesh.shape == (2, 2)
        assert mesh.mesh.tolist() == [[0, 1], [2, 3]]
        with pytest.raises(RuntimeError, match="rank 4 lies in none of them"):
            mesh["tp"].mesh  # noqa: B018
        return mesh.get_coordinate(), str(mesh.show()), x.item()

    results = shared_pool(5, backend).run(outside)
    assert results[2] == ([1, 0], [2, 3], 1)
    assert results[4][0] is None
    assert "rank 4 is not in this mesh" in results[4][1]
    assert results[4][2] == results[0][2] == 2


@pytest.mark.skipif(len(BACKENDS) < 2, reason="needs two backends")
@pytest.mark.parametrize(("backend", "other"), list(itertools.permutations(BACKENDS, 2)))
def test_backend_override_by_name(backend, other):
    def backends(override):
        mesh = init_device_mesh(
            "cpu", (2, 2), mesh_dim_names=("dp", "tp"), backend_override=override
        )
        x = torch.ones(1)
        dist.all_reduce(x, group=mesh.get_group("dp"))
        return [dist.get_backend(group) for group in mesh.get_all_groups()]

    pool = shared_pool(4, backend)
    assert pool.run(backends, {"dp": other}) == [[other, backend]] * 4
    assert pool.run(backends, {1: other}) == [[backend, other]] * 4
    assert pool.run(backends, {0: other, "tp": other}) == [[other, other]] * 4


def test_backend_override_options():
    from datetime import timedelta

    def timeouts(form):
        options = dist.ProcessGroupGloo._Options()
        options._timeout = timedelta(seconds=7)
        override = {"options": options, "both": ("gloo", options), "pairs": None}[form]
        override = [(None, None), ("gloo", options)] if form == "pairs" else {1: override}
        mesh = init_device_mesh("cpu", (2, 2), backend_override=override)
        flat = mesh._derive(mesh._dims, ("a", "b"), mesh._groups).flatten("f", options)
        device = torch.device("cpu")
        return [
            group._get_backend(device).options._timeout.total_seconds() == 7
            for group in (*mesh.get_all_groups(), flat.get_group())
        ]

    for form in ("options", "both", "pairs"):
        assert shared_pool(4).run(timeouts, form) == [[False, True, True]] * 4


@every_backend
def test_from_group(backend):
    def build():
        rank = dist.get_rank()
        columns = [dist.new_group([0, 2]), dist.new_group([1, 3])]
        rows = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        mine = [columns[rank % 2], rows[rank // 2]]
        mesh = DeviceMesh.from_group(mine, "cpu", [[0, 1], [2, 3]], mesh_dim_names=("dp", "tp"))
        assert mesh.get_group(0) is mine[0]
        assert mesh.get_group("tp") is mine[1]
        assert mesh["dp"].get_group() is mine[0]
        line = DeviceMesh.from_group(mine[1], "cpu")
        assert line.ndim == 1
        assert DeviceMesh.from_group(dist.group.WORLD, "cpu").shape == (4,)
        part = DeviceMesh.from_group(rows[1], "cpu", [2, 3])
        with pytest.raises(ValueError, match="needs mesh"):
            DeviceMesh.from_group(mine, "cpu")
        with pytest.raises(ValueError, match="needs mesh_dim_names"):
            DeviceMesh.from_group(mine, "cpu", [[0, 1], [2, 3]])
        with pytest.raises(ValueError, match="along dimension 0, but the group given for it has"):
            DeviceMesh.from_group(mine[::-1], "cpu", [[0, 1], [2, 3]], mesh_dim_names=("a", "b"))
        with pytest.raises(ValueError, match="at least one"):
            DeviceMesh.from_group([], "cpu")
        with pytest.raises(RuntimeError, match="not all different"):
            DeviceMesh.from_group(mine, "cpu", [[0, 1], [2, 3]], mesh_dim_names=("a", "a"))
        with pytest.raises(RuntimeError, match="has no index"):
            DeviceMesh.from_group(mine[1], "cpu:0")
        return line.mesh.tolist(), part.get_coordinate(), part.get_local_rank()

    assert shared_pool(4, backend).run(build) == [
        ([0, 1], None, -1),
        ([0, 1], None, -1),
        ([2, 3], [0], 0),
        ([2, 3], [1], 1),
    ]


# A mesh as a value


def test_pickled_mesh_finds_its_groups_on_any_rank_of_the_job():
    def send():
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        flat = mesh.flatten()
        own = pickle.loads(pickle.dumps(flat))
        assert own == flat
        assert own.get_group() is flat.get_group()
        assert own._root["tp"].get_group() is mesh["tp"].get_group()
        assert copy.deepcopy(mesh)["dp"].get_group() is mesh["dp"].get_group()
        box = [pickle.dumps(mesh)]
        dist.broadcast_object_list(box)
        loaded = pickle.loads(box[0])
        assert loaded == mesh
        assert hash(loaded) == hash(mesh)
        assert loaded.get_coordinate() == mesh.get_coordinate()
        return box[0], dist.get_rank()

    pickled = shared_pool(4).run(send)[0][0]
    without_job = pickle.loads(pickled)
    assert without_job.shape == (2, 2)
    assert without_job.get_coordinate() is None

    def find():
        with pytest.raises(RuntimeError, match="make the mesh anew there"):
            pickle.loads(pickled).get_group("dp")

    run_ranks(2, find)


def test_equality_and_hash():
    def compare():
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        same = DeviceMesh("cpu", [[0, 1], [2, 3]], mesh_dim_names=("dp", "tp"))
        assert mesh == same
        assert {mesh: 1}[same] == 1
        assert mesh == torch_init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        for other in (
            init_device_mesh("cpu", (2, 2)),
            init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "pp")),
            init_device_mesh("cpu", (4, 1), mesh_dim_names=("dp", "tp")),
            DeviceMesh("cpu", [[0, 2], [1, 3]], mesh_dim_names=("dp", "tp")),
            mesh["dp"],
            "mesh",
        ):
            assert mesh != other

    shared_pool(4).run(compare)


# Choosing a device


def choose(env, count, ranks=4, chosen=False):
    """What set_device() was called with on each rank, on a stand-in for torch.cuda."""

    def make():
        calls = []
        torch.standin = types.SimpleNamespace(
            is_initialized=lambda: chosen, device_count=lambda: count, set_device=calls.append
        )
        os.environ.pop("LOCAL_RANK")
        if env:
            os.environ["LOCAL_RANK"] = str(7 - dist.get_rank())
        DeviceMesh("standin", list(range(ranks)))
        return calls

    return run_ranks(ranks, make)


def test_device_from_the_launcher():
    assert choose(env=True, count=8, ranks=2) == [[7], [6]]


def test_device_that_the_user_chose_is_kept():
    assert choose(env=True, count=8, ranks=2, chosen=True) == [[], []]


def test_device_is_guessed_with_a_warning():
    with pytest.raises(UserWarning, match=r"takes device 0 \(rank modulo 2 devices\)"):
        guess_with_warnings_as_errors()
    assert choose(env=False, count=0, ranks=2) == [[], []]
    with pytest.raises(RuntimeError, match="3 ranks do not fill hosts of 2 devices"):
        choose(env=False, count=2, ranks=3)


def guess_with_warnings_as_errors():
    import warnings

    def make():
        calls = []
        torch.standin = types.SimpleNamespace(
            is_initialized=lambda: False, device_count=lambda: 2, set_device=calls.append
        )
        os.environ.pop("LOCAL_RANK")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            DeviceMesh("standin", [0, 1, 2, 3])
        assert calls == [dist.get_rank() % 2]
        if dist.get_rank() == 0:
            raise caught[0].message

    run_ranks(4, make)


# torch's own users of a mesh, on torch's mesh and on ours


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))


def gradients_alone(batches):
    """The gradients of one process that sees all batches."""
    alone = model()
    for batch in batches:
        alone(batch).square().mean().backward()
    return [parameter.grad / len(batches) for parameter in alone.parameters()]


def batch(i):
    return torch.randn(3, 4, generator=torch.Generator().manual_seed(i))


def full(gradient):
    return gradient.full_tensor() if isinstance(gradient, DTensor) else gradient


def assert_gradients(trained, batches):
    for parameter, wanted in zip(trained.parameters(), gradients_alone(batches), strict=True):
        torch.testing.assert_close(full(parameter.grad), wanted)


@every_backend
@both_meshes
def test_dtensor(backend, init):
    def shard():
        mesh = init("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        whole = torch.arange(16.0).reshape(4, 4)
        both = distribute_tensor(whole, mesh, [Shard(0), Shard(1)])
        dp, tp = divmod(dist.get_rank(), 2)
        assert torch.equal(both.to_local(), whole[2 * dp : 2 * dp + 2, 2 * tp : 2 * tp + 2])
        other = both.redistribute(placements=[Replicate(), Shard(0)])
        assert torch.equal(other.full_tensor(), whole)
        assert torch.equal((both @ both).full_tensor(), whole @ whole)
        assert both.sum().full_tensor() == whole.sum()
        with mesh["tp"]:
            assert distribute_tensor(whole, placements=[Shard(0)]).to_local().shape == (2, 4)
        with pytest.raises(RuntimeError, match="No device mesh is currently active"):
            distribute_tensor(whole, placements=[Shard(0)])

    shared_pool(4, backend).run(shard)


@every_backend
@both_meshes
def test_fsdp2_tensor_parallel_and_both(backend, init):
    def train():
        rank = dist.get_rank()
        mesh = init("cpu", (2, 2), mesh_dim_names=("dp", "tp"))

        sharded = model()
        fully_shard(sharded[0], mesh=init("cpu", (4,)))
        fully_shard(sharded, mesh=init("cpu", (4,)))
        sharded(batch(rank)).square().mean().backward()
        assert_gradients(sharded, [batch(i) for i in range(4)])

        hybrid = model()
        fully_shard(hybrid, mesh=mesh)  # replicated over dp, sharded over tp
        hybrid(batch(rank)).square().mean().backward()
        assert_gradients(hybrid, [batch(i) for i in range(4)])

        plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
        parallel = parallelize_module(model(), mesh["tp"], plan)
        parallel(batch(0)).square().mean().backward()
        assert_gradients(parallel, [batch(0)])

        both = parallelize_module(model(), mesh["tp"], plan)
        fully_shard(both, mesh=mesh["dp"])
        both(batch(rank // 2)).square().mean().backward()
        assert_gradients(both, [batch(0), batch(1)])

    shared_pool(4, backend).run(train)


@every_backend
def test_compiled_code(backend):
    def compile_it():
        mesh = init_device_mesh("cpu", (2,))
        numbers = distribute_tensor(torch.arange(4.0), mesh, [Shard(0)])
        double = torch.compile(lambda x: (2 * x).full_tensor(), backend="aot_eager", fullgraph=True)
        return double(numbers).tolist()

    assert shared_pool(2, backend).run(compile_it) == [[0, 2, 4, 6]] * 2


DOCUMENTED = [
    (
        DeviceMesh,
        "(device_type, mesh, *, mesh_dim_names=None, backend_override=None, _init_backend=True)",
    ),
    (init_device_mesh, "(device_type, mesh_shape, *, mesh_dim_names=None, backend_override=None)"),
    (DeviceMesh.from_group, "(group, device_type, mesh=None, *, mesh_dim_names=None)"),
    (DeviceMesh.get_group, "(self, mesh_dim=None)"),
    (DeviceMesh.get_local_rank, "(self, mesh_dim=None)"),
    (DeviceMesh.get_all_groups, "(self)"),
    (DeviceMesh.get_coordinate, "(self)"),
    (DeviceMesh.get_rank, "(self)"),
]


@pytest.mark.parametrize(("function", "signature"), DOCUMENTED)
def test_signatures_are_the_documented_ones(function, signature):
    ours = inspect.signature(function)
    plain = [parameter.replace(annotation=ours.empty) for parameter in ours.parameters.values()]
    assert str(ours.replace(parameters=plain, return_annotation=ours.empty)) == signature
