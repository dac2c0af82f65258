"""DeviceMesh: ranks laid out as an array, with a process group along each dimension.

The idea
    Parallel training asks two questions of every rank: which part of the batch is mine, and
    which part of the model? Two answers are two coordinates, so the ranks form an array:

                          tp: the same batch, parts of the model
                          0    1    2    3
        dp: other       +----+----+----+----+
        batches,    0   | r0 | r1 | r2 | r3 |  <- one group along tp: r0 r1 r2 r3
        the same        +----+----+----+----+
        part        1   | r4 | r5 | r6 | r7 |
                        +----+----+----+----+
                          ^ one group along dp: r0 r4

    Summing over "tp" is a collective in the rank's row, summing over "dp" one in its column. A
    mesh makes those groups (mesh_groups.py) and knows for every rank in which it lies. It computes
    that from digits (mesh_layout.py, the part worth reading first); this file gives the digits
    names and torch's interface.

What a mesh holds
    ranks    the global rank at each position, as one flat list
    dims     the dimensions, as digits of the position
    groups   this rank's process group along each dimension
    root     the mesh that it was cut from

    Slicing, flattening and the rest make a new mesh with other dims over the same list of ranks.
    Slices share the groups of the mesh they come from; flattening and unflattening make new ones.

A rank outside
    A mesh may use only some ranks of the world. All ranks make it nevertheless. The others have no
    coordinate (None) and the local rank -1; asking for a group is an error that says who is inside.
    (dist.new_group answers GroupMember.NON_GROUP_MEMBER, on which a collective silently does
    nothing: the program would go on with a tensor that nobody has reduced.)

Group rank and coordinate
    A group's ranks are in ascending order, whatever the order in the mesh, as dist.new_group
    sorts them. Along the row of DeviceMesh("cpu", [[1, 0]]) rank 1 has the coordinate 0, and in
    its group the rank 1; get_local_rank is the latter.

Source
    The interface and its semantics are those of torch.distributed.device_mesh; where this one
    differs, docs/discrepancies/mesh_join.md says why.
"""

from functools import cached_property
from math import prod

import torch
import torch.distributed as dist
from torch.distributed import GroupMember, ProcessGroup

from teachdist.mesh import mesh_layout
from teachdist.mesh.mesh_checks import check_description, check_fits_world
from teachdist.mesh.mesh_groups import (
    agree,
    backends_in_words,
    find_group,
    make_group,
    overrides_by_dim,
    ranks_in_words,
    select_device,
)
from teachdist.mesh.mesh_layout import Dim
from teachdist.mesh.mesh_torch import MeshForTorch, TorchMesh
from teachdist.mesh.mesh_views import MeshViews


class DeviceMesh(MeshViews, MeshForTorch):
    """An n-dimensional array of ranks, with a process group along each dimension.

    Every rank of the world has to make it, also one that is not in it, with the same arguments:
    ranks that come with different ones get a RuntimeError that shows the difference.

    Args:
        device_type: "cpu", "cuda", ...; without an index.
        mesh: the global ranks, as nested lists or an integer tensor, each at most once.
        mesh_dim_names: a different name for each dimension.
        backend_override: other backends for some dimensions: a dict from index or name to a
            backend's name, an Options object or a pair of both; or one pair per dimension.

    Raises:
        RuntimeError: device type with an index; names repeated or of the wrong number; more ranks
            than the world has; ranks that disagree.
        ValueError: a rank listed twice or outside the world.

    As torch.distributed.device_mesh.DeviceMesh.
    """

    def __init__(
        self,
        device_type: str,
        mesh,
        *,
        mesh_dim_names: tuple[str, ...] | None = None,
        backend_override=None,
        _init_backend: bool = True,
    ):
        array = torch.as_tensor(mesh, dtype=torch.int, device="cpu")
        ranks = tuple(array.flatten().tolist())
        dims = mesh_layout.row_major(tuple(array.shape))
        check_description(device_type, tuple(array.shape), ranks, mesh_dim_names)
        overrides = overrides_by_dim(backend_override, len(dims), mesh_dim_names)
        self._set(device_type, ranks, dims, mesh_dim_names)
        if _init_backend:
            if not dist.is_initialized():
                dist.init_process_group()
            check_fits_world(ranks)
            select_device(device_type)
            agree(f"{self!r} of ranks {ranks_in_words(array)}{backends_in_words(overrides)}")
            self._groups = self._make_groups(dims, self._dim_labels(), overrides)
        self._find_coordinate()

    def _set(self, device_type, ranks, dims, names, root=None, groups=None):
        self._device_type = device_type
        self._ranks = ranks
        self._dims = tuple(dims)
        self._mesh_dim_names = tuple(names) if names else None
        self._root = self if root is None else root
        self._groups = groups  # None: not made; empty: made, and this rank has none
        self._flattened = {}  # name -> flattened mesh, kept by the root

    def _derive(self, dims, names, groups):
        """Another mesh over the same ranks."""
        mesh = object.__new__(DeviceMesh)
        mesh._set(self._device_type, self._ranks, dims, names, self._root, groups)
        mesh._find_coordinate()
        return mesh

    def _find_coordinate(self):
        """Look up where this rank stands; DTensor asks for it at every operation."""
        me = dist.get_rank() if dist.is_initialized() else None
        self._position = self._ranks.index(me) if me in self._ranks else None
        self._coordinate = None
        if self._position is not None:
            self._coordinate = tuple(dim.index(self._position) for dim in self._dims)

    def _make_groups(self, dims, labels, overrides):
        """Make the groups along these dims; a list of this rank's, empty for a rank outside."""
        groups = []
        for dim, label, override in zip(dims, labels, overrides, strict=True):
            rank_lists = [
                [self._ranks[position] for position in group]
                for group in dim.groups(len(self._ranks))
            ]
            groups.append(make_group(rank_lists, label, override))
        return [] if GroupMember.NON_GROUP_MEMBER in groups else groups

    def _dim_labels(self):
        return self._mesh_dim_names or [f"dim_{i}" for i in range(self.ndim)]

    # What it looks like

    @property
    def device_type(self) -> str:
        """The kind of device that the ranks compute on."""
        return self._device_type

    @property
    def mesh_dim_names(self) -> tuple[str, ...] | None:
        """The names of the dimensions, or None."""
        return self._mesh_dim_names

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of each dimension."""
        return tuple(dim.size for dim in self._dims)

    @property
    def ndim(self) -> int:
        """How many dimensions there are."""
        return len(self._dims)

    def size(self, mesh_dim: int | str | None = None) -> int:
        """How many ranks along one dimension, or altogether."""
        return prod(self.shape) if mesh_dim is None else self._dim(mesh_dim).size

    @property
    def mesh(self) -> torch.Tensor:
        """The global ranks as an integer tensor of the mesh's shape, on the CPU.

        Of a slice it is the part with this rank; RuntimeError on a rank that lies in none.
        """
        everything = mesh_layout.flatten(self._dims)
        if self._position is None and everything.size < len(self._ranks):
            raise RuntimeError(
                f"{self!r} is a slice, one of {len(self._ranks) // everything.size}, and rank "
                f"{self.get_rank()} lies in none of them, so there is no tensor of its own to show"
            )
        start = everything.start(self._position or 0)
        ranks = [self._ranks[start + offset] for offset in everything.offsets()]
        return torch.tensor(ranks, dtype=torch.int, device="cpu").reshape(self.shape)

    def __repr__(self):
        sizes = self.shape
        if self._mesh_dim_names:
            named = zip(self._mesh_dim_names, sizes, strict=True)
            sizes = "(" + ", ".join(f"{name}={size}" for name, size in named) + ")"
        strides = [tuple(stride for _, stride in dim.digits) for dim in self._dims]
        strides = tuple(stride[0] if len(stride) == 1 else stride for stride in strides)
        return f"DeviceMesh({sizes}, '{self._device_type}', stride={strides})"

    def show(self):
        """A picture of the mesh with this rank and its groups, for notebook and terminal."""
        from teachdist.mesh.mesh_picture import MeshPicture

        return MeshPicture(self)

    # Where this rank stands

    def get_rank(self) -> int:
        """Return the global rank of this process."""
        return dist.get_rank()

    def get_coordinate(self) -> list[int] | None:
        """Return this rank's index in each dimension, or None if it is not in the mesh."""
        return None if self._coordinate is None else list(self._coordinate)

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        """Return this rank's rank in its group along a dimension; -1 if it is not in the mesh.

        mesh_dim may be left out of a mesh with one dimension, otherwise that is a RuntimeError.
        """
        return dist.get_rank(self._group(mesh_dim))

    def get_group(self, mesh_dim: int | str | None = None) -> ProcessGroup:
        """Return this rank's process group along a dimension, given by index or name.

        mesh_dim may be left out of a mesh with one dimension. It may also be the name of a
        flattened mesh.

        Raises RuntimeError if there are several dimensions and none is named, and on a rank outside
        the mesh; KeyError for a name and IndexError for an index that does not exist.
        """
        group = self._group(mesh_dim)
        if group is GroupMember.NON_GROUP_MEMBER:
            raise RuntimeError(
                f"get_group: rank {self.get_rank()} is not in {self!r}, whose ranks are "
                f"{ranks_in_words(torch.tensor(self._ranks))}, so it has no group there. Ask "
                "mesh.get_coordinate() first: it is None on ranks outside."
            )
        return group

    def _group(self, mesh_dim):
        """The group along a dimension; GroupMember.NON_GROUP_MEMBER on a rank outside."""
        if mesh_dim is None:
            if self.ndim != 1:
                raise RuntimeError(
                    f"Which group? {self!r} has {self.ndim} dimensions; pass mesh_dim, or call "
                    "get_all_groups()"
                )
            mesh_dim = 0
        if mesh_dim in self._root._flattened:
            return self._root._flattened[mesh_dim]._group(None)
        index = self._index(mesh_dim)
        if self._groups is None:
            raise RuntimeError(f"{self!r} was made without groups (_init_backend=False)")
        if not self._groups:
            return GroupMember.NON_GROUP_MEMBER
        if self._groups[index] is None:
            raise RuntimeError(
                f"{self!r} was unpickled in a process that has no such group along dimension "
                f"{mesh_dim!r}; make the mesh anew there"
            )
        return self._groups[index]

    def get_all_groups(self) -> list[ProcessGroup]:
        """Return this rank's groups, one per dimension."""
        return [self.get_group(i) for i in range(self.ndim)]

    def _index(self, mesh_dim):
        if isinstance(mesh_dim, str):
            names = self._mesh_dim_names or ()
            if mesh_dim not in names:
                raise KeyError(f"no dimension is called {mesh_dim!r}; the names are {names}")
            return names.index(mesh_dim)
        if not -self.ndim <= mesh_dim < self.ndim:
            raise IndexError(f"dimension {mesh_dim} of {self!r}, which has {self.ndim}")
        return mesh_dim

    def _dim(self, mesh_dim) -> Dim:
        return self._dims[self._index(mesh_dim)]

    # As a value

    @cached_property
    def _key(self):
        """What makes two meshes equal; torch's meshes have the same key."""
        return self._hash_key()

    @cached_property
    def _hash(self):
        return hash(self._key)

    def __eq__(self, other):
        return self is other or (isinstance(other, TorchMesh) and self._key == other._hash_key())

    def __hash__(self):
        return self._hash

    def __getstate__(self):
        """Groups cannot travel, but their names can: the same job finds them again."""
        kept = ["_device_type", "_ranks", "_dims", "_mesh_dim_names", "_root", "_flattened"]
        names = self._groups and [group and group.group_name for group in self._groups]
        return {key: self.__dict__[key] for key in kept} | {"_groups": names}

    def __setstate__(self, state):
        self.__dict__.update(state)
        if self._groups is not None:
            self._groups = [find_group(name) for name in self._groups]
        self._find_coordinate()


def init_device_mesh(
    device_type: str,
    mesh_shape: tuple[int, ...],
    *,
    mesh_dim_names: tuple[str, ...] | None = None,
    backend_override=None,
) -> DeviceMesh:
    """A mesh of ranks 0, 1, 2, ... laid out in this shape, the last dimension fastest.

    Initialises the default process group from the environment if there is none. Arguments and
    errors as for `DeviceMesh`; ValueError also for a size below 1.

    As torch.distributed.device_mesh.init_device_mesh.
    """
    if any(size < 1 for size in mesh_shape):
        raise ValueError(f"mesh_shape {tuple(mesh_shape)}: every dimension needs at least one rank")
    return DeviceMesh(
        device_type,
        torch.arange(prod(mesh_shape), dtype=torch.int, device="cpu").reshape(tuple(mesh_shape)),
        mesh_dim_names=mesh_dim_names,
        backend_override=backend_override,
    )
