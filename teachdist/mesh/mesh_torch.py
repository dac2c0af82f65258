"""What torch's own code reads from a mesh beside the public names.

DTensor, FSDP2, tensor parallelism and distributed checkpoints ask for `isinstance(mesh,
torch.distributed.DeviceMesh)` and read some private fields. This class gives them what they look
for, computed from the readable mesh, so that

    fully_shard(model, mesh=teachdist.init_device_mesh("cpu", (4,)))

works. Nothing here is needed to understand a mesh: read mesh_layout.py and device_mesh.py.
"""

from functools import cached_property

import torch
from torch.distributed import device_mesh as torch_mesh
from torch.distributed._mesh_layout import _FlatLayout, _MeshLayout

TorchMesh = torch_mesh.DeviceMesh


class MeshForTorch(TorchMesh):
    """The private face of a mesh; subclasses have `_ranks`, `_dims`, `_groups`, `_root`."""

    _thread_id = None
    _preserve_rank_order = False  # since torch 2.15; a dimension's ranks are in the mesh's order

    @cached_property
    def _layout(self):
        axes = []
        for dim in self._dims:
            sizes, strides = zip(*dim.digits, strict=True) if dim.digits else ((), ())
            axes.append(_FlatLayout(sizes, strides))
        return _MeshLayout(axes)

    @property
    def _rank_map(self):
        return torch.tensor(self._ranks, dtype=torch.int, device="cpu")

    @property
    def _flatten_rank_map(self):
        return self._ranks

    @property
    def _rank(self):
        return self.get_rank()

    @property
    def _coordinate_on_dim(self):
        return self._coordinate

    @property
    def _dim_group_names(self):
        if self._groups is None:
            raise AttributeError("_dim_group_names")  # how torch asks whether there are groups
        return [group.group_name for group in self._groups]

    @property
    def _pg_registry(self):
        return {group.group_name: group for group in self._groups or []}

    @property
    def _root_mesh(self):
        return None if self._root is self else self._root

    @property
    def _flatten_mapping(self):
        return self._root._flattened

    def __enter__(self):
        """Make this the mesh that DTensor functions take when none is given."""
        torch_mesh._mesh_resources.mesh_stack.append(self)
        return self

    def __exit__(self, *exc):
        torch_mesh._mesh_resources.mesh_stack.pop()

    def _flatten(self, mesh_dim_name=None, backend_override=None):
        return self.flatten(mesh_dim_name, backend_override)

    def _unflatten(self, dim, mesh_sizes, mesh_dim_names, backend_override=None):
        return self.unflatten(dim, mesh_sizes, mesh_dim_names, backend_override)

    @staticmethod
    def _concatenate(device_mesh_list):
        return device_mesh_list[0].concatenate(device_mesh_list)
