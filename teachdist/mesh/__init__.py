"""DeviceMesh, to be read: it stands on torch.distributed alone.

device_mesh.py   the mesh as users have it
mesh_layout.py   a mesh is a number system
mesh_groups.py   the process groups of its dimensions
mesh_views.py    meshes made from what there is
mesh_checks.py   what no mesh can be
mesh_torch.py    what torch's own code reads beside the public names
mesh_picture.py  the mesh as a picture
"""

from teachdist.mesh.device_mesh import DeviceMesh, init_device_mesh

__all__ = ["DeviceMesh", "init_device_mesh"]
