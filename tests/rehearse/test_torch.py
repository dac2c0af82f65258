"""What torch.distributed has beside the programs: groups, meshes, objects, futures, and so on."""

import os
import random

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.distributed.algorithms.join import Join
from torch.distributed.tensor import Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

import teachdist
from teachdist import rehearse


def test_nested_groups():
    def program():
        rank = dist.get_rank()
        outer = dist.new_group([0, 1, 2, 3])
        inner = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        total = torch.tensor([float(rank)])
        if rank < 4:
            dist.all_reduce(total, group=outer)
            dist.all_reduce(total, group=inner[rank // 2])
        mine, _ = dist.new_subgroups(3)
        return total.item(), dist.get_process_group_ranks(mine)

    results = rehearse(program, ranks=6).results
    assert [total for total, _ in results] == [12.0] * 4 + [4.0, 5.0]
    assert [ranks for _, ranks in results] == [[0, 1, 2]] * 3 + [[3, 4, 5]] * 3


def test_groups_with_local_synchronization():
    def program():
        rank = dist.get_rank()
        mine = [rank // 2 * 2, rank // 2 * 2 + 1]
        group = dist.new_group(mine, use_local_synchronization=True)
        total = torch.tensor([float(rank)])
        dist.all_reduce(total, group=group)
        return total.item()

    assert rehearse(program, ranks=4).results == [1.0, 1.0, 5.0, 5.0]


def test_meshes_of_torch_and_ours():
    def program(make):
        mesh = make("cpu", (2, 2), mesh_dim_names=("rows", "columns"))
        total = torch.tensor([float(dist.get_rank())])
        dist.all_reduce(total, group=mesh["columns"].get_group())
        return total.item(), mesh.get_coordinate()

    for make in (dist.init_device_mesh, teachdist.init_device_mesh):
        results = rehearse(program, make, ranks=4).results
        assert [total for total, _ in results] == [1.0, 1.0, 5.0, 5.0]
        assert [list(place) for _, place in results] == [[0, 0], [0, 1], [1, 0], [1, 1]]


def test_objects():
    def program():
        rank, size = dist.get_rank(), dist.get_world_size()
        everything = [None] * size
        dist.all_gather_object(everything, {"rank": rank})
        part = [None]
        dist.scatter_object_list(part, [[r] for r in range(size)] if rank == 0 else None, src=0)
        return everything, part[0]

    expected = [{"rank": rank} for rank in range(4)]
    assert rehearse(program, ranks=4).results == [(expected, [rank]) for rank in range(4)]


def test_functional_collectives():
    def program():
        rank = dist.get_rank()
        total = functional.all_reduce(torch.ones(2) * rank, "sum", dist.group.WORLD)
        gathered = functional.all_gather_single(torch.tensor([rank]), 0, dist.group.WORLD)
        return total.tolist(), gathered.tolist()

    assert rehearse(program, ranks=4).results == [([6.0, 6.0], [0, 1, 2, 3])] * 4


def test_a_sum_of_sparse_tensors():
    def program():
        rank = dist.get_rank()
        mine = torch.sparse_coo_tensor([[rank, 3]], [1.0, 10.0], (4,))
        dist.all_reduce(mine)
        return mine.to_dense().tolist()

    with torch.sparse.check_sparse_tensor_invariants(True):  # torch warns if nobody has decided
        results = rehearse(program, ranks=3).results
    assert results == [[1.0, 1.0, 1.0, 30.0]] * 3


def test_join_with_uneven_inputs():
    def program():
        net = DistributedDataParallel(torch.nn.Linear(2, 1, bias=False))
        steps = 0
        with Join([net]):
            for _ in range(2 + dist.get_rank()):
                net(torch.ones(1, 2)).sum().backward()
                steps += 1
        return steps

    assert rehearse(program, ranks=3).results == [2, 3, 4]


def test_a_future_and_its_callbacks():
    def program():
        work = dist.all_reduce(torch.ones(2), async_op=True)
        doubled = work.get_future().then(lambda future: future.value()[0] * dist.get_rank())
        return doubled.wait().tolist(), work.is_completed()

    assert rehearse(program, ranks=3).results == [([3.0 * r] * 2, True) for r in range(3)]


def test_random_numbers_are_those_of_a_process_of_its_own():
    def program():
        rank = dist.get_rank()
        torch.manual_seed(rank)
        random.seed(rank)
        np.random.seed(rank)
        dist.barrier()
        return torch.rand(1).item(), random.random(), float(np.random.rand())

    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    results = rehearse(program, ranks=3).results
    after = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]
    for rank, (ours, python, numpy) in enumerate(results):
        made = torch.Generator().manual_seed(rank)
        assert ours == torch.rand(1, generator=made).item()
        assert python == random.Random(rank).random()
        assert numpy == float(np.random.RandomState(rank).rand())


def test_the_environment_is_each_ranks_own():
    def program():
        os.environ["MINE"] = os.environ["RANK"]
        dist.barrier()
        return os.environ["MINE"], os.environ["LOCAL_RANK"], os.environ["WORLD_SIZE"]

    answer = rehearse(program, ranks=4, topology="2 hosts x 2")
    assert answer.results == [(str(r), str(r % 2), "4") for r in range(4)]
    assert "MINE" not in os.environ
    assert os.getenv("RANK") is None


def test_arguments_are_copied():
    def program(net):
        net.weight.data.fill_(dist.get_rank())
        dist.barrier()
        return net.weight.item()

    net = torch.nn.Linear(1, 1, bias=False)
    before = net.weight.item()
    assert rehearse(program, net, ranks=3).results == [0.0, 1.0, 2.0]
    assert net.weight.item() == before


def test_a_loader_and_its_sampler():
    def program():
        data = list(range(8))
        loader = DataLoader(data, batch_size=2, sampler=DistributedSampler(data, shuffle=False))
        return [batch.tolist() for batch in loader]

    assert rehearse(program, ranks=2).results == [[[0, 2], [4, 6]], [[1, 3], [5, 7]]]


def test_a_program_that_makes_its_groups_again():
    def program():
        totals = []
        for _ in range(2):
            dist.init_process_group("gloo")
            dist.all_reduce(total := torch.ones(1))
            totals.append(total.item())
            dist.destroy_process_group()
        return totals

    assert rehearse(program, ranks=3, init=False).results == [[3.0, 3.0]] * 3


def test_uneven_shards_have_their_own_sizes_though_ranks_share_what_dtensor_found():
    def program():
        mesh = dist.init_device_mesh("cpu", (4,))
        whole = torch.arange(70.0).reshape(7, 10)
        found = []
        for place in (0, 1):
            part = distribute_tensor(whole, mesh, [Shard(place)])
            found.append(torch.equal((part.t() @ part).full_tensor(), whole.t() @ whole))
            found.append(torch.equal(part.sum(0).full_tensor(), whole.sum(0)))
            found.append(tuple(part.new_zeros(7, 10).to_local().shape))
        return found

    results = rehearse(program, ranks=4).results
    assert results[0] == results[2] == [True, True, (2, 10), True, True, (7, 3)]
    assert results[3] == [True, True, (1, 10), True, True, (7, 1)]
