"""Our DeviceMesh against torch's, with every rank of the world played in turn in this process.

The wheel's `fake` process group says that it is rank r of n and sends nothing, which is enough to
compare layouts, coordinates, groups and errors.
"""

import contextlib
import warnings

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh as TorchMesh
from torch.distributed.device_mesh import init_device_mesh as torch_init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore

from teachdist.mesh import DeviceMesh, init_device_mesh


@contextlib.contextmanager
def playing(rank, world):
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
    try:
        yield
    finally:
        dist.destroy_process_group()


def seen(mesh):
    """All that a user can see of a mesh that this rank is in."""
    return {
        "mesh": mesh.mesh.tolist(),
        "dtype": mesh.mesh.dtype,
        "shape": mesh.shape,
        "ndim": mesh.ndim,
        "sizes": [mesh.size(), *(mesh.size(i) for i in range(mesh.ndim))],
        "names": mesh.mesh_dim_names,
        "device": mesh.device_type,
        "rank": mesh.get_rank(),
        "coordinate": tuple(mesh.get_coordinate()),
        "groups": [dist.get_process_group_ranks(group) for group in mesh.get_all_groups()],
        "group descriptions": [
            group.group_desc for group in mesh.get_all_groups() if group is not dist.group.WORLD
        ],
        "local ranks": [mesh.get_local_rank(i) for i in range(mesh.ndim)],
        "repr": repr(mesh),
    }


def outcome(call, *args):
    """What the mesh that a call returns shows, or the class of what the call raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that slices of flattened names will go
        try:
            return seen(call(*args))
        except Exception as error:  # noqa: BLE001  the class is what is compared
            return type(error)


def flatten(mesh, some, name):
    sliced = mesh[some]
    return sliced.flatten(name) if isinstance(mesh, DeviceMesh) else sliced._flatten(name)


def unflatten(mesh, *args):
    return mesh.unflatten(*args) if isinstance(mesh, DeviceMesh) else mesh._unflatten(*args)


def concatenate(mesh, parts):
    slices = [mesh[part] for part in parts]
    if isinstance(mesh, DeviceMesh):
        return DeviceMesh.concatenate(slices)
    return TorchMesh._concatenate(slices)


SHAPES = [
    ((1,), ("a",)),
    ((4,), ("a",)),
    ((16,), ("a",)),
    ((2, 4), ("dp", "tp")),
    ((4, 2), ("dp", "tp")),
    ((1, 4), ("dp", "tp")),
    ((4, 1), ("dp", "tp")),
    ((3, 2), ("dp", "tp")),
    ((2, 2, 2), ("dp", "cp", "tp")),
    ((2, 1, 3), ("dp", "cp", "tp")),
    ((3, 2, 2), ("dp", "cp", "tp")),
    ((2, 2, 2, 2), ("pp", "dp", "cp", "tp")),
]


def slices(names):
    """Every name, every pair and triple in every order, all names, and some that are wrong."""
    from itertools import permutations

    for length in range(1, len(names) + 1):
        yield from permutations(names, length)
    yield from (("nobody",), (names[0], names[0]), ())


@pytest.mark.parametrize(("shape", "names"), SHAPES)
def test_same_mesh_and_slices(shape, names):
    world = torch.Size(shape).numel()
    for rank in range(world):
        with playing(rank, world):
            ours = init_device_mesh("cpu", shape, mesh_dim_names=names)
            theirs = torch_init_device_mesh("cpu", shape, mesh_dim_names=names)
            assert seen(ours) == seen(theirs)
            assert ours == theirs
            assert theirs == ours
            assert hash(ours) == hash(theirs)
            for some in slices(names):
                assert outcome(ours.__getitem__, some) == outcome(theirs.__getitem__, some), some


def test_documented_2_by_8_mesh():
    for rank in range(16):
        with playing(rank, 16):
            mesh = init_device_mesh("cpu", (2, 8), mesh_dim_names=("dp", "tp"))
            assert mesh.mesh.tolist() == [list(range(8)), list(range(8, 16))]
            assert mesh.get_coordinate() == [rank // 8, rank % 8]


FLATTENED = [
    ((2, 2, 2), ("dp", "cp", "tp"), ("dp", "cp"), None),
    ((2, 2, 2), ("dp", "cp", "tp"), ("cp", "tp"), "inner"),
    ((2, 2, 2), ("dp", "cp", "tp"), ("dp", "tp"), None),
    ((2, 2, 2), ("dp", "cp", "tp"), ("dp", "cp", "tp"), None),
    ((2, 1, 3), ("dp", "cp", "tp"), ("dp", "cp"), None),
    ((2, 4), ("dp", "tp"), ("tp",), "tp"),
    ((2, 4), ("dp", "tp"), ("tp",), "dp"),
    ((2, 4), ("dp", "tp"), ("tp",), "model"),
    ((2, 2, 2, 2), ("pp", "dp", "cp", "tp"), ("pp", "cp"), None),
    ((2, 2, 2, 2), ("pp", "dp", "cp", "tp"), ("pp", "cp", "tp"), "x"),
]


@pytest.mark.parametrize(("shape", "names", "some", "name"), FLATTENED)
def test_same_flattened(shape, names, some, name):
    world = torch.Size(shape).numel()
    for rank in range(world):
        with playing(rank, world):
            ours = init_device_mesh("cpu", shape, mesh_dim_names=names)
            theirs = torch_init_device_mesh("cpu", shape, mesh_dim_names=names)
            what = outcome(flatten, ours, some, name)
            assert what == outcome(flatten, theirs, some, name)
            new = name or "_".join(some)
            last = names[-1:]
            for sliced in (new, (*last, new), (new, *last)):
                assert outcome(ours.__getitem__, sliced) == outcome(theirs.__getitem__, sliced)
            assert outcome(flatten, ours, last, new) == outcome(flatten, theirs, last, new)
            if isinstance(what, dict) and len(some) > 1:
                assert ours[some].flatten(name) is ours[some].flatten(name)
                assert ours.get_group(new) is ours[some].flatten(name).get_group()


UNFLATTENED = [
    ((8,), ("w",), "w", (2, 4), ("dp", "tp")),
    ((8,), ("w",), 0, (2, 2, 2), ("dp", "cp", "tp")),
    ((8,), ("w",), 0, (8, 1), ("dp", "tp")),
    ((2, 4), ("dp", "tp"), "tp", (2, 2), ("cp", "tp")),
    ((4, 2), ("dp", "tp"), "dp", (2, 2), ("pp", "dp")),
    ((4, 2), ("dp", "tp"), "dp", (2, 3), ("pp", "dp")),
    ((4, 2), ("dp", "tp"), "nobody", (2, 2), ("pp", "dp")),
    ((4, 2), ("dp", "tp"), 2, (2, 2), ("pp", "dp")),
    ((4, 2), ("dp", "tp"), 0, (2, 2), ("pp",)),
]


@pytest.mark.parametrize(("shape", "names", "dim", "sizes", "new"), UNFLATTENED)
def test_same_unflattened(shape, names, dim, sizes, new):
    world = torch.Size(shape).numel()
    for rank in range(world):
        with playing(rank, world):
            ours = init_device_mesh("cpu", shape, mesh_dim_names=names)
            theirs = torch_init_device_mesh("cpu", shape, mesh_dim_names=names)
            args = (dim, sizes, new)
            assert outcome(unflatten, ours, *args) == outcome(unflatten, theirs, *args)


def test_same_unflattened_slice_of_a_flattened_mesh():
    for rank in range(8):
        with playing(rank, 8):
            ours = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("dp", "cp", "tp"))
            theirs = torch_init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("dp", "cp", "tp"))
            ours = ours["dp", "tp"].flatten().unflatten("dp_tp", (2, 2), ("a", "b"))
            theirs = theirs["dp", "tp"]._flatten()._unflatten("dp_tp", (2, 2), ("a", "b"))
            assert seen(ours) == seen(theirs)
            assert seen(ours["b"]) == seen(theirs["b"])


def test_same_concatenated():
    for rank in range(8):
        with playing(rank, 8):
            ours = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("dp", "cp", "tp"))
            theirs = torch_init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("dp", "cp", "tp"))
            for parts in [("dp", "tp"), ("tp", "dp"), ("dp", "dp"), (("dp", "cp"), "tp")]:
                assert outcome(concatenate, ours, parts) == outcome(concatenate, theirs, parts)
            other = init_device_mesh("cpu", (2, 4), mesh_dim_names=("a", "b"))
            assert seen(DeviceMesh.concatenate([ours["dp"], other["b"]])) == seen(
                TorchMesh._concatenate([theirs["dp"], other["b"]])
            )
            few = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
            with pytest.raises(RuntimeError, match="different meshes"):
                DeviceMesh.concatenate([ours["dp"], few["b"]])


MESHES = [
    [[0, 1, 2, 3], [4, 5, 6, 7]],
    [[3, 1, 2, 0], [7, 5, 6, 4]],
    [[0, 2, 4, 6], [1, 3, 5, 7]],
    [7, 6, 5, 4, 3, 2, 1, 0],
    torch.arange(8).reshape(2, 2, 2).transpose(0, 2),
    torch.tensor([[0.0, 1, 2, 3], [4, 5, 6, 7]]),
]


@pytest.mark.parametrize("mesh", MESHES, ids=range(len(MESHES)))
def test_same_mesh_from_any_array_of_ranks(mesh):
    for rank in range(8):
        with playing(rank, 8):
            assert seen(DeviceMesh("cpu", mesh)) == seen(TorchMesh("cpu", mesh))


def test_same_part_of_the_world():
    inside = [[6, 4], [1, 3]]
    for rank in range(8):
        with playing(rank, 8):
            ours = DeviceMesh("cpu", inside, mesh_dim_names=("a", "b"))
            theirs = TorchMesh("cpu", inside, mesh_dim_names=("a", "b"))
            assert ours == theirs
            if rank in (6, 4, 1, 3):
                assert seen(ours) == seen(theirs)
                assert seen(ours["a"]) == seen(theirs["a"])
            else:
                assert ours.mesh.tolist() == theirs.mesh.tolist() == inside
                assert ours.get_coordinate() is theirs.get_coordinate() is None
                # torch has no answer to these, ours are in test_mesh.py
                with pytest.raises(IndexError):
                    theirs.get_group("a")
                with pytest.raises(RuntimeError):
                    theirs["a"]


def test_a_rank_listed_twice_is_refused_on_every_rank():
    for rank in range(4):
        with playing(rank, 4):
            with pytest.raises(ValueError, match=r"lists ranks \[1\] more than once"):
                DeviceMesh("cpu", [[0, 1], [1, 3]])
            if rank == 1:  # torch notices there, too, others get a mesh
                with pytest.raises(AssertionError):
                    TorchMesh("cpu", [[0, 1], [1, 3]], _init_backend=False)
            else:
                TorchMesh("cpu", [[0, 1], [1, 3]], _init_backend=False)


def test_names_and_device_type_are_checked_however_a_mesh_is_made():
    with playing(0, 4):
        for make in (DeviceMesh, lambda *args, **kwargs: mesh_of_world(*args, **kwargs)):
            with pytest.raises(RuntimeError, match="has no index"):
                make("cpu:0", [0, 1, 2, 3])
            with pytest.raises(RuntimeError, match="one for each"):
                make("cpu", [0, 1, 2, 3], mesh_dim_names=("a", "b"))
        with pytest.raises(RuntimeError, match="not all different"):
            DeviceMesh("cpu", [[0, 1], [2, 3]], mesh_dim_names=("a", "a"))
        with pytest.raises(ValueError, match="at least one rank"):
            init_device_mesh("cpu", (0, 4))
        with pytest.raises(ValueError, match="has no ranks"):
            DeviceMesh("cpu", [])
        assert TorchMesh.from_group(dist.group.WORLD, "cpu:0").device_type == "cpu:0"


def mesh_of_world(device_type, mesh, **kwargs):
    return DeviceMesh.from_group(dist.group.WORLD, device_type, mesh, **kwargs)


def test_slicing_by_a_flattened_name_does_not_warn():
    with playing(1, 4):
        ours = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
        theirs = torch_init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
        assert ours["a", "b"].flatten() == ours["a_b"]
        theirs._flatten()
        with pytest.warns(UserWarning, match="will be deprecated"):
            assert theirs["a_b"] == ours["a_b"]


def test_coordinate_is_the_documented_list():
    with playing(6, 8):
        assert init_device_mesh("cpu", (2, 4)).get_coordinate() == [1, 2]
        assert torch_init_device_mesh("cpu", (2, 4)).get_coordinate() == (1, 2)


def test_local_rank_follows_the_group_not_the_coordinate():
    with playing(1, 2):
        for mesh in (DeviceMesh("cpu", [1, 0]), TorchMesh("cpu", [1, 0])):
            assert list(mesh.get_coordinate()) == [0]
            assert mesh.get_local_rank() == 1


REFUSED = [
    lambda init, mesh: init("cpu:0", (4,)),
    lambda init, mesh: init("cpu", (2, 2), mesh_dim_names=("a", "a")),
    lambda init, mesh: init("cpu", (2, 2), mesh_dim_names=("a",)),
    lambda init, mesh: init("cpu", (2, 4)),
    lambda init, mesh: mesh("cpu", [[0, 1, 2, 3], [4, 5, 6, 7]]),
    lambda init, mesh: mesh("cpu", [0, 9]),
    lambda init, mesh: mesh("cpu", [0, 1, 2, 3], backend_override=()),
    lambda init, mesh: init("cpu", (2, 2), backend_override={3: "fake"}),
    lambda init, mesh: init(
        "cpu", (2, 2), mesh_dim_names=("a", "b"), backend_override={"c": "fake"}
    ),
    lambda init, mesh: init(
        "cpu", (2, 2), mesh_dim_names=("a", "b"), backend_override={"b": "fake", 1: "fake"}
    ),
    lambda init, mesh: init("cpu", (2, 2)).get_group(),
    lambda init, mesh: init("cpu", (2, 2)).get_local_rank(),
    lambda init, mesh: init("cpu", (2, 2)).get_group("a"),
    lambda init, mesh: init("cpu", (2, 2)).get_group(2),
    lambda init, mesh: init("cpu", (2, 2), mesh_dim_names=("a", "b")).get_group("c"),
    lambda init, mesh: init("cpu", (2, 2))["a"],
    lambda init, mesh: mesh("cpu", [0, 1, 2, 3], _init_backend=False).get_group(),
    lambda init, mesh: mesh.from_group([], "cpu"),
    lambda init, mesh: mesh.from_group([dist.group.WORLD] * 2, "cpu"),
    lambda init, mesh: mesh.from_group([dist.group.WORLD] * 2, "cpu", [[0, 1], [2, 3]]),
    lambda init, mesh: mesh.from_group(
        [dist.group.WORLD] * 2, "cpu", [0, 1, 2, 3], mesh_dim_names=("a", "b")
    ),
    lambda init, mesh: mesh.from_group(dist.group.WORLD, "cpu", [0, 1]),
]


@pytest.mark.parametrize("make", REFUSED, ids=range(len(REFUSED)))
def test_same_class_of_error(make):
    with playing(2, 4):
        with pytest.raises(Exception) as theirs:  # noqa: PT011  torch decides which class it is
            make(torch_init_device_mesh, TorchMesh)
        with pytest.raises(theirs.type):
            make(init_device_mesh, DeviceMesh)


def test_same_from_group():
    for rank in range(8):
        with playing(rank, 8):
            columns = [dist.new_group([i, i + 4]) for i in range(4)]
            rows = [dist.new_group(list(range(i, i + 4))) for i in (0, 4)]
            mine = [columns[rank % 4], rows[rank // 4]]
            array = [[0, 1, 2, 3], [4, 5, 6, 7]]
            for mesh in (array, torch.tensor(array)):
                ours = DeviceMesh.from_group(mine, "cpu", mesh, mesh_dim_names=("a", "b"))
                theirs = TorchMesh.from_group(mine, "cpu", mesh, mesh_dim_names=("a", "b"))
                assert seen(ours) == seen(theirs)
                assert ours.get_all_groups() == mine
            for group in (dist.group.WORLD, mine[1]):
                ours, theirs = (cls.from_group(group, "cpu") for cls in (DeviceMesh, TorchMesh))
                assert seen(ours) == seen(theirs)
                assert ours.get_group() is group
