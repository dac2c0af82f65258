"""What no mesh can be: refused before anything is sent."""

import torch.distributed as dist


def check_description(device_type, shape, ranks, names):
    """Refuse a device type with an index, unfit names, and ranks that are missing or repeated."""
    if not device_type.isalpha():
        raise RuntimeError(
            f"device type {device_type!r}: a mesh spans devices, so its device type has no index; "
            "pass device.type"
        )
    if names is not None:
        check_names(names, len(shape))
    if not ranks:
        raise ValueError(f"a mesh of shape {shape} has no ranks")
    twice = sorted({rank for rank in ranks if ranks.count(rank) > 1})
    if twice:
        raise ValueError(f"the mesh lists ranks {twice} more than once; a rank has one place")


def check_names(names, ndim):
    """Raise RuntimeError unless there is one name per dimension, all different."""
    if len(names) != ndim:
        raise RuntimeError(f"mesh_dim_names {tuple(names)} for {ndim} dimensions: one for each")
    if len(set(names)) != len(names):
        raise RuntimeError(f"mesh_dim_names {tuple(names)} are not all different")


def check_fits_world(ranks):
    """Raise RuntimeError if there are more ranks than in the world, ValueError for others."""
    world = dist.get_world_size()
    if len(ranks) > world:
        raise RuntimeError(f"a mesh of {len(ranks)} ranks, but the world has {world}")
    outside = [rank for rank in ranks if not 0 <= rank < world]
    if outside:
        raise ValueError(f"the mesh lists ranks {outside}, but the world has 0 to {world - 1}")


def check_group(mesh, dim, group):
    """Raise ValueError unless the group has this rank's neighbours along dim, and only those."""
    wanted, there = [], []
    if mesh._position is not None:
        start = dim.start(mesh._position)
        wanted = sorted(mesh._ranks[start + offset] for offset in dim.offsets())
    if group is not dist.GroupMember.NON_GROUP_MEMBER:
        there = sorted(dist.get_process_group_ranks(group))
    if there != wanted:
        raise ValueError(
            f"the mesh {mesh.mesh.tolist()} gives rank {mesh.get_rank()} a group of ranks {wanted} "
            f"along dimension {mesh._dims.index(dim)}, but the group given for it has ranks {there}"
        )
