"""Groups of torch.distributed, as documented, on every backend."""

from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from ranks import BACKENDS, RankPool, shared_pool
from torch.distributed import GroupMember

every_backend = pytest.mark.parametrize("backend", BACKENDS)
SHORT = timedelta(seconds=2)


def summed(group=None, value=1.0):
    x = torch.tensor([float(value)])
    dist.all_reduce(x, group=group)
    return x.item()


def times_out(call):
    """Whether the call ends in an error of the backend rather than never."""
    try:
        call()
    except RuntimeError:
        return True
    return False


class Meet:
    """A place in the default store where ranks wait for each other, without a collective."""

    def __init__(self):
        self.store = dist.distributed_c10d._get_default_store()

    def arrive(self, name):
        self.store.set(f"meet/{name}/{dist.get_rank()}", b"")

    def wait_for(self, name, ranks):
        self.store.wait([f"meet/{name}/{rank}" for rank in ranks], timedelta(seconds=30))


@every_backend
def test_any_subset_is_a_group(backend):
    def use():
        group = dist.new_group([0, 2])
        x = torch.tensor([float(dist.get_rank())])
        if dist.get_rank() in (0, 2):
            dist.all_reduce(x, group=group)
            everything(group)
        return x.item()

    def everything(group):
        """A new group takes part in every kind of collective."""
        me, ones = dist.get_rank(group), torch.ones(2)
        dist.broadcast(ones, src=0, group=group)
        dist.reduce(ones, dst=2, group=group)
        parts = [torch.zeros(1), torch.zeros(1)]
        dist.all_gather(parts, torch.tensor([float(me)]), group=group)
        assert [part.item() for part in parts] == [0, 1]
        dist.gather(torch.ones(1), parts if me == 0 else None, dst=0, group=group)
        dist.scatter(torch.ones(1), parts if me == 1 else None, src=2, group=group)
        out = torch.zeros(1)
        dist.reduce_scatter_tensor(out, torch.tensor([1.0, 2.0]), group=group)
        assert out.item() == 2 * (me + 1)
        swapped = torch.zeros(2)
        dist.all_to_all_single(swapped, torch.tensor([me * 10.0, me * 10 + 1]), group=group)
        assert swapped.tolist() == [me, me + 10]
        objects = [None, None]
        dist.all_gather_object(objects, me, group=group)
        assert objects == [0, 1]
        dist.barrier(group=group)
        if me == 0:
            dist.send(torch.ones(1), dst=2, group=group)
        else:
            dist.recv(out, src=0, group=group)
            assert out.item() == 1

    assert shared_pool(4, backend).run(use) == [2, 1, 2, 3]


@every_backend
def test_ranks_none_is_the_world(backend):
    def use():
        group = dist.new_group()
        return dist.get_process_group_ranks(group), summed(group)

    assert shared_pool(3, backend).run(use) == [([0, 1, 2], 3)] * 3


@every_backend
def test_a_collective_without_one_rank_times_out(backend):
    def use():
        meet = Meet()
        if dist.get_rank() == 2:
            meet.wait_for("world", [0, 1])
            return None
        gave_up = times_out(summed)
        meet.arrive("world")
        return gave_up

    with RankPool(3, backend, limit=2) as pool:
        assert pool.run(use) == [True, True, None]


@every_backend
def test_timeout_of_a_group(backend):
    def use():
        meet = Meet()
        group = dist.new_group([0, 1], timeout=SHORT)
        first = summed(group) if dist.get_rank() < 2 else None
        if dist.get_rank() != 0:
            meet.wait_for("short", [0])
            return first, None
        gave_up = times_out(lambda: summed(group))
        meet.arrive("short")
        return first, gave_up

    with RankPool(3, backend) as pool:
        assert pool.run(use) == [(2, True), (2, None), (None, None)]


@every_backend
def test_every_rank_has_to_call_new_group(backend):
    def use():
        try:
            if dist.get_rank() != 2:  # rank 2 is no member, yet it should have called
                dist.new_group([1])
            group = dist.new_group([0, 2], timeout=SHORT)
            return None if dist.get_rank() == 1 else summed(group)
        except (RuntimeError, ValueError) as error:
            return str(error)

    with RankPool(3, backend) as pool:
        said = pool.run(use)
    assert isinstance(said[0], str)
    assert isinstance(said[2], str)
    if backend == "teachdist":
        assert any("Every rank of the job must call new_group" in str(text) for text in said)


@every_backend
def test_groups_in_another_order_get_mixed_up(backend):
    def use():
        names = ["a", "b"] if dist.get_rank() == 0 else ["b", "a"]
        groups = {name: dist.new_group([0, 1], timeout=SHORT) for name in names}
        mixed_up = summed(groups[names[0]])  # rank 0 in a, rank 1 in b
        return mixed_up, times_out(lambda: summed(groups["a"]))

    with RankPool(2, backend) as pool:
        assert pool.run(use) == [(2, True)] * 2


@every_backend
def test_local_synchronization_leaves_others_alone(backend):
    def use():
        meet = Meet()
        if dist.get_rank() == 2:  # never calls, and is waiting elsewhere meanwhile
            meet.wait_for("made", [0, 1])
            return None
        group = dist.new_group([0, 1], use_local_synchronization=True)
        total = summed(group)
        meet.arrive("made")
        return total

    with RankPool(3, backend) as pool:
        assert pool.run(use) == [2, 2, None]


@every_backend
def test_local_synchronization_in_conflicting_orders_times_out(backend):
    def use(orders, limit):
        def make_and_use():
            return [
                summed(dist.new_group(ranks, timeout=limit, use_local_synchronization=True))
                for ranks in orders[dist.get_rank()]
            ]

        return times_out(make_and_use)

    rows_then_columns = [[[0, 1], [0, 2]], [[0, 1], [1, 3]], [[2, 3], [0, 2]], [[2, 3], [1, 3]]]
    conflicting = [[[0, 1], [0, 2]], [[1, 3], [0, 1]], [[0, 2], [2, 3]], [[2, 3], [1, 3]]]
    assert shared_pool(4, backend).run(use, rows_then_columns, None) == [False] * 4
    with RankPool(4, backend) as pool:
        assert pool.run(use, conflicting, SHORT) == [True] * 4


@every_backend
def test_local_synchronization_in_one_order(backend):
    """The documentation says that one order on all ranks avoids the deadlock.

    torch 2.14 names such a group by how many groups its member has made: [0, 2] is the second of
    rank 0 and the first of rank 2, so they do not meet.
    """

    def use():
        members = [ranks for ranks in ([0, 1], [0, 2], [1, 2]) if dist.get_rank() in ranks]

        def make_and_use():
            return [
                summed(dist.new_group(ranks, timeout=SHORT, use_local_synchronization=True))
                for ranks in members
            ]

        return times_out(make_and_use)

    with RankPool(3, backend) as pool:
        assert pool.run(use) == [backend != "teachdist"] * 3


def test_local_synchronization_is_not_for_mpi():
    def use():
        with pytest.raises(ValueError, match="MPI backend doesn't support use_local_sync"):
            dist.new_group([0, 1], backend="mpi", use_local_synchronization=True)

    shared_pool(2).run(use)


@pytest.mark.skipif(len(BACKENDS) < 2, reason="needs two backends")
def test_backend_of_a_group():
    def use(other):
        groups = [dist.new_group(backend=name) for name in (None, other, dist.Backend(other))]
        assert [summed(group) for group in groups] == [2, 2, 2]
        return [dist.get_backend(group) for group in groups]

    for backend, other in (BACKENDS, BACKENDS[::-1]):
        assert shared_pool(2, backend).run(use, other) == [[backend, other, other]] * 2


@pytest.mark.skipif("teachdist" not in BACKENDS, reason="needs the teachdist backend")
def test_options_of_a_group():
    def use():
        from teachdist import Options

        options = Options(timeout=SHORT, all_reduce="ring")
        group = dist.new_group([0, 1, 2], pg_options=options)
        return summed(group), dist.get_backend_impl(group).options.algorithms

    assert shared_pool(3, "teachdist").run(use) == [(3, {"all_reduce": "ring"})] * 3


@every_backend
def test_description_and_membership(backend):
    def use():
        group = dist.new_group([0], group_desc="only the first")
        if dist.get_rank() == 1:
            assert group is GroupMember.NON_GROUP_MEMBER
            return dist.get_rank(group), dist.get_world_size(group)
        return group.group_desc

    assert shared_pool(2, backend).run(use) == ["only the first", (-1, -1)]


@every_backend
def test_ranks_in_and_out_of_a_group(backend):
    def use():
        group = dist.new_group([3, 1])
        world = dist.group.WORLD
        ranks = list(range(4))
        assert [dist.get_group_rank(world, rank) for rank in ranks] == ranks
        assert [dist.get_global_rank(world, rank) for rank in ranks] == ranks
        assert dist.get_process_group_ranks(None) == ranks
        if dist.get_rank() in (1, 3):
            assert dist.get_process_group_ranks(group) == [1, 3]
            assert [dist.get_group_rank(group, rank) for rank in (1, 3)] == [0, 1]
            assert [dist.get_global_rank(group, rank) for rank in (0, 1)] == [1, 3]
            with pytest.raises(ValueError, match="Global rank 0 is not part of group"):
                dist.get_group_rank(group, 0)
            with pytest.raises(ValueError, match="Group rank 2 is not part of group"):
                dist.get_global_rank(group, 2)

    shared_pool(4, backend).run(use)
