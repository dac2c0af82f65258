"""Making the process groups of a mesh: agree, choose a device, then one group per dimension.

Agree first
    Making a group is a rendezvous: it ends when all members have come. If rank 0 lays out
    (2, 4) and rank 1 (4, 2), each waits for members who will never come. So all ranks first tell
    each other what they are about to make; a difference is an error on every rank, and it shows
    who said what. That is one `all_gather_object`.

As few groups as possible
    dist.new_group is usually called by every rank for every group, its own or not: a (2, 4) mesh
    is 4 groups along one dimension and 2 along the other, six calls on each rank; a (64, 8) mesh
    is 72. But a rank lies in exactly one group per dimension, so two calls are enough:
    use_local_synchronization=True lets a rank make a group without the others.

    Its documented danger is a deadlock between overlapping groups made in different orders. It
    can't happen here: groups of one dimension do not overlap, and all ranks go through the
    dimensions in the same order.

    Two refinements. A dimension that spans the world is the default group: no call at all. And
    torch numbers its groups by counting the calls, on each rank for itself: ranks that make fewer
    calls would name later groups differently. So when the mesh leaves some ranks out, every rank
    takes part in every call, as torch does it.
"""

import hashlib
import os
import warnings

import torch
import torch.distributed as dist
from torch.distributed import GroupMember
from torch.distributed.distributed_c10d import _resolve_process_group


def agree(what: str, groups=(None,)) -> None:
    """Raise RuntimeError on every rank unless all came with the same text.

    With several groups, one along each dimension, the question goes along one after the other,
    together with the complaint if there is one: after the last, everyone has heard of everyone.
    """
    complaint = None
    for group in groups:
        if dist.get_backend(group) == "fake":  # one process plays a rank: nobody is there to ask
            continue
        said = [None] * dist.get_world_size(group)
        dist.all_gather_object(said, (what, complaint), group=group)
        heard = [theirs for _, theirs in said if theirs]
        texts = [text for text, _ in said]
        if heard:
            complaint = heard[0]
        elif len(set(texts)) > 1:
            complaint = _difference(texts, dist.get_process_group_ranks(group))
    if complaint:
        raise RuntimeError(complaint)


def _difference(texts, ranks):
    lines = [
        f"  {_name(rank for rank, text in zip(ranks, texts, strict=True) if text == version)}: "
        f"{version}"
        for version in dict.fromkeys(texts)
    ]
    return (
        "the ranks describe different meshes, so no group was made:\n"
        + "\n".join(lines)
        + "\nEvery rank has to ask for the same: device type, shape, names and backends."
    )


def _name(ranks):
    ranks = list(ranks)
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"


def make_group(rank_lists, label, override=(None, None)):
    """Make the groups along one dimension; this rank's is returned.

    Args:
        rank_lists: the global ranks of all groups along it, the same lists on every rank.
        label: goes into the group's description, for logs and profiles.
        override: (backend, options) of the new groups, None for the default group's.

    Returns:
        A ProcessGroup, or GroupMember.NON_GROUP_MEMBER if no list has this rank.
    """
    backend, options = override
    world, me = dist.get_world_size(), dist.get_rank()
    if override == (None, None) and len(rank_lists[0]) == world:
        return dist.group.WORLD
    each_has_one = sum(map(len, rank_lists)) == world
    mine = GroupMember.NON_GROUP_MEMBER
    for ranks in rank_lists:
        if each_has_one and me not in ranks:
            continue
        made = dist.new_group(
            ranks,
            timeout=getattr(options, "_timeout", None),
            backend=backend,
            pg_options=options,
            use_local_synchronization=each_has_one,
            group_desc=f"mesh_{label}",
        )
        if me in ranks:
            mine = made
    return mine


def find_group(name):
    """The process group of that name in this process, or None."""
    if name is None:
        return None
    try:
        return _resolve_process_group(name)
    except RuntimeError:
        return None


def overrides_by_dim(backend_override, ndim, names):
    """The (backend, options) pair of each dimension.

    Args:
        backend_override: None; a dict from a dimension's index or name to a backend's name, an
            Options object, or a pair of both; or a sequence of one pair per dimension.
        ndim: how many dimensions there are.
        names: their names, or None.

    Raises RuntimeError for a dimension that does not exist or is given twice, ValueError for a
    sequence of the wrong length.
    """
    if backend_override is None:
        return [(None, None)] * ndim
    if not isinstance(backend_override, dict):
        if len(backend_override) != ndim:
            raise ValueError(
                f"backend_override has {len(backend_override)} entries for {ndim} dimensions"
            )
        return [pair(value) for value in backend_override]
    left = dict(backend_override)
    found = []
    for index, name in enumerate(names or [None] * ndim):
        keys = [key for key in (index, name) if key is not None and key in left]
        if len(keys) == 2:
            raise RuntimeError(
                f"backend_override names dimension {index} twice, as {index} and as {name!r}"
            )
        found.append(pair(left.pop(keys[0])) if keys else (None, None))
    if left:
        raise RuntimeError(
            f"backend_override names dimensions that do not exist: {list(left)}. "
            f"There are 0 to {ndim - 1}" + (f", called {tuple(names)}" if names else "")
        )
    return found


def pair(value):
    """(backend, options) from a name, an Options object, a pair of both, or None."""
    if value is None:
        return None, None
    if isinstance(value, str):
        return value, None
    if isinstance(value, (tuple, list)):
        backend, options = value
        return backend, options
    return None, value


def backends_in_words(overrides):
    """What differs from the default backend, for comparison between ranks; often nothing."""
    if all(override == (None, None) for override in overrides):
        return ""
    words = [
        f"{backend or 'default'}{f' with {type(options).__name__}' if options else ''}"
        for backend, options in overrides
    ]
    return f" on backends {', '.join(words)}"


def ranks_in_words(array):
    """The ranks of a mesh, for comparison between ranks: in full if that is short."""
    ranks = array.flatten().tolist()
    if ranks == list(range(len(ranks))):
        return f"0 to {len(ranks) - 1}"
    if len(ranks) <= 64:
        return str(array.tolist())
    digest = hashlib.sha256(str(ranks).encode()).hexdigest()
    return f"{ranks[:8]}... ({len(ranks)} of them, digest {digest[:16]})"


def select_device(device_type):
    """Give this process its device, unless the user has chosen one.

    Torch keeps the current device per process, and a communicator is bound to it. LOCAL_RANK, set
    by launchers, says which it is; without it the guess is that hosts are alike and ranks fill
    one after the other.
    """
    module = getattr(torch, device_type, None)
    if module is None or module.is_initialized() or dist.get_backend() == "fake":
        return
    if "LOCAL_RANK" in os.environ:
        module.set_device(int(os.environ["LOCAL_RANK"]))
        return
    world, per_host = dist.get_world_size(), module.device_count()
    if per_host == 0:
        return
    if world > per_host and world % per_host:
        raise RuntimeError(
            f"Cannot guess which {device_type} device is whose: {world} ranks do not fill hosts "
            f"of {per_host} devices. Call torch.{device_type}.set_device() before making the mesh."
        )
    warnings.warn(
        f"No {device_type} device was chosen and LOCAL_RANK is not set, so this rank takes device "
        f"{dist.get_rank() % per_host} (rank modulo {per_host} devices). Call "
        f"torch.{device_type}.set_device() before making the mesh, or start with torchrun.",
        stacklevel=4,
    )
    module.set_device(dist.get_rank() % per_host)
