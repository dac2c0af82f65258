"""Meshes made from what there is: from a mesh, or from process groups.

Slices, flattened, split and concatenated meshes look at the same ranks with other digits
(mesh_layout.py):

        mesh = (dp=2:4, cp=2:2, tp=2:1)           ranks that rank 6 sees

        mesh["dp", "tp"]                          [[2, 3], [6, 7]]     its own cp, 1, is fixed
        mesh["dp", "cp"].flatten()                [0, 2, 4, 6]         named "dp_cp"
        mesh.unflatten("dp", (1, 2), ("a", "b"))  [[[[0, 1], ...       one more dimension
        concatenate([mesh["dp"], mesh["tp"]])     [[2, 3], [6, 7]]     as the slice above

A slice needs no new group: along each of its dimensions it is the group that the mesh has. Flatten
and unflatten bring new sets of ranks together, so they make groups: all ranks have to call them.
They first compare what they are about to do, asking along the groups that exist already.
"""

import torch
import torch.distributed as dist
from torch.distributed import GroupMember, ProcessGroup

from teachdist.mesh import mesh_layout
from teachdist.mesh.mesh_checks import check_group, check_names
from teachdist.mesh.mesh_groups import agree, backends_in_words, overrides_by_dim, pair


class MeshViews:
    """The part of DeviceMesh that makes meshes from what there is."""

    def __getitem__(self, mesh_dim_names: str | tuple[str, ...]):
        """The mesh of some dimensions, given by name, with this rank's place in the others fixed.

        The root also knows the names of meshes flattened from it. Costs no communication.

        Raises RuntimeError without names or for dimensions that overlap, KeyError for an unknown
        name or names in another order than in the mesh.
        """
        if not self._mesh_dim_names:
            raise RuntimeError(f"{self!r} has no mesh_dim_names to slice by")
        names = (mesh_dim_names,) if isinstance(mesh_dim_names, str) else tuple(mesh_dim_names)
        if names == self._mesh_dim_names:
            return self
        sources = dict.fromkeys(self._mesh_dim_names, self)
        if self._root is self:
            sources = self._flattened | sources
        unknown = [name for name in names if name not in sources]
        if unknown:
            raise KeyError(f"no dimension is called {unknown}; the names are {list(sources)}")
        dims = tuple(sources[name]._dim(name) for name in names)
        if not mesh_layout.slowest_first(dims):
            raise KeyError(f"{names} have to be in the order of the mesh, {self._mesh_dim_names}")
        if not mesh_layout.disjoint(dims):
            raise RuntimeError(f"{names} overlap: a rank would have two places in one dimension")
        groups = self._groups
        if groups:
            groups = [sources[name]._group(name) for name in names]
        return self._derive(dims, names, groups)

    def flatten(self, mesh_dim_name: str | None = None, backend_override=None):
        """The mesh as one dimension, with a new group over all of its ranks.

        Every rank of the root has to call it. The result is kept: it is root[mesh_dim_name] from
        now on, and asking again gives the same mesh.

        Args:
            mesh_dim_name: by default the names joined by "_".
            backend_override: a backend's name, an Options object, or a pair of both.

        Raises RuntimeError without names, ValueError for a name that means something else already.
        """
        if not self._mesh_dim_names:
            raise RuntimeError(f"{self!r} has no mesh_dim_names, so it cannot be flattened")
        name = mesh_dim_name or "_".join(self._mesh_dim_names)
        if self._mesh_dim_names == (name,):
            return self
        root = self._root
        if name in (root._mesh_dim_names or ()):
            raise ValueError(f"{name!r} is a dimension of {root!r} already; choose another name")
        dims = (mesh_layout.flatten(self._dims),)
        known = root._flattened.get(name)
        if known is not None:
            if known._dims != dims:
                raise ValueError(f"{name!r} was flattened from other dimensions; choose another")
            return known
        groups = self._groups
        if groups is not None:
            override = pair(backend_override)
            agree(f"flatten {self!r} to {name!r}{backends_in_words([override])}", groups)
            groups = self._make_groups(dims, [name], [override])
        root._flattened[name] = self._derive(dims, (name,), groups)
        return root._flattened[name]

    def unflatten(
        self,
        dim: int | str,
        mesh_sizes: tuple[int, ...],
        mesh_dim_names: tuple[str, ...],
        backend_override=None,
    ):
        """The mesh with one dimension split into several, with new groups along those.

        Every rank of the root has to call it.

        Raises ValueError for a dimension that does not exist or sizes that do not fit it,
        RuntimeError without names, or for new names that repeat or are not one per size.
        """
        if not self._mesh_dim_names:
            raise RuntimeError(f"{self!r} has no mesh_dim_names, so it cannot be unflattened")
        if isinstance(dim, str) and dim not in self._mesh_dim_names:
            raise ValueError(f"no dimension is called {dim!r}; the names are {self.mesh_dim_names}")
        if not isinstance(dim, str) and not -self.ndim <= dim < self.ndim:
            raise ValueError(f"dimension {dim} of {self!r}, which has {self.ndim}")
        if len(mesh_sizes) != len(mesh_dim_names):
            raise RuntimeError(f"names {mesh_dim_names} for sizes {mesh_sizes}: one for each")
        at = self._index(dim) % self.ndim
        parts = mesh_layout.unflatten(self._dims[at], tuple(mesh_sizes))
        dims = (*self._dims[:at], *parts, *self._dims[at + 1 :])
        names = (*self._mesh_dim_names[:at], *mesh_dim_names, *self._mesh_dim_names[at + 1 :])
        check_names(names, len(dims))
        groups = self._groups
        if groups is not None:
            overrides = overrides_by_dim(backend_override, len(parts), mesh_dim_names)
            what = f"unflatten {self!r} to {mesh_sizes} {names}{backends_in_words(overrides)}"
            agree(what, groups[at : at + 1])
            made = self._make_groups(parts, mesh_dim_names, overrides)
            groups = groups and [*groups[:at], *made, *groups[at + 1 :]]
        return self._derive(dims, names, groups)

    @staticmethod
    def concatenate(meshes: list):
        """One mesh with the dimensions of all of these, which were cut from the same mesh.

        It shares their groups and costs no communication.

        Raises RuntimeError if they come from different meshes or overlap.
        """
        first = meshes[0]
        if any(mesh._ranks != first._ranks for mesh in meshes):
            raise RuntimeError(f"{meshes} were cut from different meshes: no layout has them all")
        if not all(mesh._mesh_dim_names for mesh in meshes):
            raise RuntimeError(f"{meshes} cannot be put side by side without mesh_dim_names")
        dims = tuple(dim for mesh in meshes for dim in mesh._dims)
        names = tuple(name for mesh in meshes for name in mesh._mesh_dim_names)
        if not mesh_layout.disjoint(dims):
            raise RuntimeError(f"{meshes} overlap: a rank would have two places in one dimension")
        check_names(names, len(dims))
        groups = None
        if all(mesh._groups is not None for mesh in meshes):
            groups = [group for mesh in meshes for group in mesh._groups]
        return first._derive(dims, names, groups)

    @classmethod
    def from_group(
        cls,
        group: ProcessGroup | list[ProcessGroup],
        device_type: str,
        mesh=None,
        *,
        mesh_dim_names: tuple[str, ...] | None = None,
    ):
        """A mesh over groups that exist: one dimension for each group, in their order.

        Args:
            group: this rank's group, or its groups, one per dimension.
            device_type: "cpu", "cuda", ...; without an index.
            mesh: the global ranks; may be left out for a single group.
            mesh_dim_names: needed for a list of groups.

        Raises ValueError if mesh or names are missing, or if a group does not have the ranks that
        the mesh says; RuntimeError as the constructor.
        """
        alone = not isinstance(group, (list, tuple))
        groups = [group] if alone else list(group)
        if not groups:
            raise ValueError("from_group needs at least one process group")
        if not alone and (mesh is None or mesh_dim_names is None):
            missing = "mesh" if mesh is None else "mesh_dim_names"
            raise ValueError(f"a list of process groups needs {missing}, to say how they lie")
        if mesh is None:
            if groups[0] is GroupMember.NON_GROUP_MEMBER:
                raise ValueError("this rank is not in the group, so pass mesh to say who is")
            mesh = dist.get_process_group_ranks(groups[0])
        mesh = torch.as_tensor(mesh, dtype=torch.int, device="cpu")
        if mesh.ndim != len(groups):
            raise ValueError(
                f"{len(groups)} process groups for a mesh of {mesh.ndim} dimensions, "
                f"{mesh.tolist()}: one group for each"
            )
        made = cls(device_type, mesh, mesh_dim_names=mesh_dim_names, _init_backend=False)
        for dim, member in zip(made._dims, groups, strict=True):
            check_group(made, dim, member)
        made._groups = [] if made._position is None else groups
        return made
