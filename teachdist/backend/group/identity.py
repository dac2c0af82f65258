"""Which group is this? What its ranks must agree on before they can meet.

torch names groups by counting: the first `new_group` of a process makes group "1", and so on. So
two ranks that make different groups call them alike, and would meet, each taking the other for
somebody else. And a group with `use_local_synchronization=True` is named after its ranks and
that count, which differ between ranks as soon as one of them has made more groups than another.
Therefore:

- The first rank to make a group writes down its list of ranks; a rank that comes with another
  list under the same name is told both.
- Groups that are named after their ranks meet under their ranks and how often this list has been
  made, a count that all communicators share.

The same name may come again on the same store: a program destroys its groups and starts anew.
Each such life of the job's first group is numbered, and everything is kept apart by that number;
otherwise the cards of the former life would answer.
"""

import contextlib
import hashlib
import json
import os
import re
import weakref
from dataclasses import dataclass

import torch.distributed as dist

from teachdist.backend.torch_patches import count_groups, groups_made
from teachdist.diagnose.call_site import call_site

_world = None  # weak reference to the Communicator of the job's first group
_made = {}  # (life of the job, ranks) -> how often a local group of these ranks was made


@dataclass(frozen=True)
class Identity:
    """key: tells this group from others on its store. life: of the job. world: its first group."""

    key: str
    life: int
    store: object
    world: object
    site: str

    def about(self, communicator):
        """What the board says of the group, for readers from outside."""
        return {
            "id": self.key,
            "group": communicator.title,
            "size": communicator.size,
            "ranks": communicator.global_ranks,
            "number": communicator.global_ranks[communicator.rank],
            "made": self.site,
            "job": _address(communicator.store),
        }


def identify(communicator):
    """The identity of the group that `communicator` is joining."""
    global _world
    site = call_site()
    world = _world() if _world is not None and dist.is_initialized() else None
    store, number = communicator.store, communicator.global_ranks[communicator.rank]
    if world is None:
        life = store.add(f"teachdist/life/{number}", 1)
        if not dist.is_initialized():  # torch is making it right now
            _world = weakref.ref(communicator)
            _made.clear()
        return Identity(f"{life}", life, store, None, site)
    life = world.life
    ranks = json.dumps(communicator.global_ranks)
    if re.fullmatch("[0-9a-f]{40}", communicator.name):
        count = _made[life, ranks] = _made.get((life, ranks), 0) + 1
        short = hashlib.blake2b(ranks.encode(), digest_size=8).hexdigest()
        return Identity(f"{life}/local/{short}/{count}", life, world.store, world, site)
    again = store.add(f"teachdist/{life}/made/{number}", 1)
    key = f"{life}/{communicator.name}/{again}"
    _agree(communicator, f"teachdist/{key}/ranks", json.dumps([ranks, number, site]))
    if communicator.size == 1:
        key = f"{key}/alone/{number}"
    return Identity(key, life, store, world, site)


class Counts:
    """How many groups this rank has made: what names and keys of the next ones come from.

    groups: torch's count. made: that of the store. local: by list of ranks.
    """

    def __init__(self, groups, made, local):
        self.groups, self.made, self.local = groups, made, local

    @classmethod
    def of(cls, world):
        """Those of this process; world: the Communicator of the job's first group."""
        made = world.store.add(_made_by(world), 0)
        local = {ranks: count for (life, ranks), count in _made.items() if life == world.life}
        return cls(groups_made(), made, local)

    def dumps(self):
        """As something that JSON knows."""
        return [self.groups, self.made, self.local]

    @classmethod
    def go_on_from(cls, world, dumped):
        """Count on from the highest of what all ranks have dumped."""
        everybody = [cls(*one) for one in dumped]
        count_groups(max(one.groups for one in everybody))
        made = max(one.made for one in everybody)
        world.store.add(_made_by(world), made - world.store.add(_made_by(world), 0))
        for one in everybody:
            for ranks, count in one.local.items():
                if world.global_ranks[world.rank] in json.loads(ranks):
                    key = world.life, ranks
                    _made[key] = max(_made.get(key, 0), count)


def _made_by(world):
    return f"teachdist/{world.life}/made/{world.global_ranks[world.rank]}"


def unmake(communicator, tracks=True):
    """The job's first group did not come about: take back what this rank left.

    tracks: also what it left in the store.
    """
    count_groups(0)
    if not tracks:
        return
    generation, rank = communicator.generation, communicator.rank
    with contextlib.suppress(RuntimeError):  # the store may be gone, or unable to forget
        for key in (f"card/{generation}/{rank}", f"failed/{generation}", f"read/{rank}"):
            communicator.shared.delete_key(key)
        # Ranks that have not come yet will count the next attempt as their first; so does torch,
        # which names groups by counting.
        communicator.store.add(f"teachdist/life/{communicator.global_ranks[rank]}", -1)


def title(name):
    """A group as messages call it: by its description, such as "mesh_dp", or its name."""
    with contextlib.suppress(Exception):  # not made through torch, or not registered yet
        described = dist.distributed_c10d._resolve_process_group(name).group_desc
        if described not in ("", "undefined", "default_pg"):
            return described
    return name


def _agree(communicator, key, mine):
    """Raise if another rank has made a group of this name with other ranks."""
    first = json.loads(communicator.store.compare_set(key, "", mine))
    ranks, number, site = first
    own, me, here = json.loads(mine)
    alone = all(len(json.loads(each)) == 1 for each in (ranks, own))  # they have nobody to meet
    if ranks != own and not alone:
        raise ValueError(
            f'new_group: rank {me} makes group "{communicator.name}" of ranks {own} at {here}, '
            f'but rank {number} has made group "{communicator.name}" of ranks {ranks} at {site}. '
            "Every rank of the job must call new_group for every group, in the same order, "
            "also for groups that it is not in; or pass use_local_synchronization=True."
        )


def _address(store):
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    host, port = getattr(store, "host", None), getattr(store, "port", None)
    if host:
        return f"{host}:{port}"
    return getattr(store, "path", "") or f"{type(store).__name__} of process {os.getpid()}"
