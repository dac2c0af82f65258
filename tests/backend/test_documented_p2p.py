"""Point to point, as torch.distributed documents it."""

import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from ranks import raised, shared_pool


@pytest.fixture(scope="module")
def two():
    return shared_pool(2, "teachdist")


@pytest.fixture(scope="module")
def three():
    return shared_pool(3, "teachdist")


@pytest.fixture(scope="module")
def four():
    return shared_pool(4, "teachdist")


def test_send_and_recv(two):
    def job():
        tensor = torch.arange(5.0)
        if dist.get_rank() == 0:
            return dist.send(tensor, dst=1)
        tensor = torch.zeros(5)
        return dist.recv(tensor, src=0), tensor.tolist()

    assert two.run(job) == [None, (0, [0, 1, 2, 3, 4])]


def test_isend_and_irecv(two):
    def job():
        tensor = torch.full((3,), 7.0) if dist.get_rank() == 0 else torch.zeros(3)
        first = dist.get_rank() == 0
        request = dist.isend(tensor, dst=1) if first else dist.irecv(tensor, src=0)
        waited = request.wait()
        return waited, request.is_completed(), tensor.tolist()

    assert two.run(job) == [(True, True, [7, 7, 7])] * 2


def test_is_completed_follows_the_message(two):
    def job():
        if dist.get_rank() == 0:
            go = torch.zeros(1)
            dist.recv(go, src=1)
            dist.send(torch.ones(1), dst=1)
            return None
        tensor = torch.zeros(1)
        request = dist.irecv(tensor, src=0, tag=0)
        before = request.is_completed()
        dist.send(torch.ones(1), dst=0)
        until = time.monotonic() + 20
        while not request.is_completed():  # nobody waits for it: it comes all the same
            assert time.monotonic() < until
            time.sleep(0.001)
        return before, tensor.item()

    assert two.run(job)[1] == (False, 1)


def test_wait_makes_completed(three):
    def job():
        rank = dist.get_rank()
        if rank == 0:
            tensors = [torch.zeros(2) for _ in range(2)]
            requests = [dist.irecv(t, src=i + 1) for i, t in enumerate(tensors)]
            return [request.wait() and request.is_completed() for request in requests]
        return dist.send(torch.ones(2), dst=0)

    assert three.run(job)[0] == [True, True]


def test_ranks_in_subgroups(four):
    """dst and src are ranks of the job, group_dst and group_src ranks of the group."""

    def job():
        group = dist.new_group([1, 3])
        rank, seen = dist.get_rank(), []
        if rank == 1:
            dist.send(torch.tensor([1.0]), dst=3, group=group)
            dist.send(torch.tensor([2.0]), group_dst=1, group=group)
            dist.isend(torch.tensor([3.0]), group_dst=1, group=group).wait()
        if rank == 3:
            for given in ({"src": 1}, {"group_src": 0}):
                tensor = torch.zeros(1)
                seen.append((dist.recv(tensor, group=group, **given), tensor.item()))
            tensor = torch.zeros(1)
            dist.irecv(tensor, group_src=0, group=group).wait()
            seen.append(tensor.item())
        return seen

    assert four.run(job)[3] == [(1, 1.0), (1, 2.0), 3.0]


def test_any_source(three):
    """recv without src says who sent; in a subgroup too it is the rank in the job."""

    def job():
        rank = dist.get_rank()
        group = dist.new_group([0, 2])
        found = set()
        if rank == 0:
            for _ in range(2):
                tensor = torch.zeros(1)
                found.add((dist.recv(tensor), tensor.item()))
            tensor = torch.zeros(1)
            request = dist.irecv(tensor, group=group)
            request.wait()
            found.add((request.source_rank(), tensor.item()))
            found.add((dist.recv(tensor, group=group), tensor.item()))
        else:
            dist.send(torch.tensor([float(rank)]), dst=0)
            if rank == 2:
                dist.send(torch.tensor([20.0]), dst=0, group=group)
                dist.send(torch.tensor([30.0]), dst=0, group=group)
        return found

    assert three.run(job)[0] == {(1, 1.0), (2, 2.0), (1, 20.0), (2, 30.0)}


def test_tags_pair_messages(two):
    def job():
        if dist.get_rank() == 0:
            requests = [dist.isend(torch.tensor([float(t)]), dst=1, tag=t) for t in (1, 2)]
            return [request.wait() for request in requests]
        seen = []
        for tag in (2, 1):
            tensor = torch.zeros(1)
            dist.recv(tensor, src=0, tag=tag)
            seen.append(tensor.item())
        return seen

    assert two.run(job)[1] == [2.0, 1.0]


def test_order_of_equal_tags(two):
    """Messages with one tag arrive in the order in which they were sent, whoever waits when."""

    def job():
        if dist.get_rank() == 0:
            for i in range(200):
                dist.isend(torch.tensor([float(i)]), dst=1)
            dist.barrier()
            return None
        early = [torch.zeros(1) for _ in range(100)]
        requests = [dist.irecv(t, src=0) for t in early]
        for request in reversed(requests):
            request.wait()
        late = [torch.zeros(1) for _ in range(100)]
        for tensor in late:
            dist.recv(tensor, src=0)
        dist.barrier()
        return [t.item() for t in early + late]

    assert two.run(job)[1] == list(range(200))


def test_to_oneself(two):
    """isend and irecv may; send and recv may not (they would wait for themselves)."""

    def job():
        rank = dist.get_rank()
        tensor, got = torch.tensor([3.0 + rank]), torch.zeros(1)
        sending, receiving = dist.isend(tensor, dst=rank), dist.irecv(got, src=rank)
        sending.wait()
        receiving.wait()
        errors = raised(dist.send, tensor, dst=rank), raised(dist.recv, got, src=rank)
        return got.item(), [error and error[0] for error in errors]

    assert two.run(job) == [(3.0, ["ValueError", "ValueError"]), (4.0, ["ValueError"] * 2)]


def test_both_spellings_at_once(two):
    def job():
        tensor, peer = torch.zeros(1), 1 - dist.get_rank()
        return [
            raised(call, tensor, **{name: peer, f"group_{name}": peer})[0]
            for call, name in [
                (dist.send, "dst"),
                (dist.isend, "dst"),
                (dist.recv, "src"),
                (dist.irecv, "src"),
            ]
        ]

    assert two.run(job) == [["ValueError"] * 4] * 2


def test_outside_the_group(two):
    """A rank that is not in the group gets None or -1, and no error."""

    def job():
        group = dist.new_group([0])
        if dist.get_rank() == 0:
            return None
        tensor = torch.zeros(1)
        with pytest.warns(UserWarning, match="not belong"):
            return [
                dist.isend(tensor, dst=0, group=group),
                dist.irecv(tensor, src=0, group=group),
                dist.recv(tensor, src=0, group=group),
            ]

    assert two.run(job)[1] == [None, None, -1]


def test_both_send_first(two):
    """Two ranks that send before they receive, more than any buffer of the system holds."""

    def job():
        peer, rank = 1 - dist.get_rank(), dist.get_rank()
        got = torch.zeros(4_000_000)
        dist.send(torch.full((4_000_000,), float(rank)), dst=peer)
        dist.recv(got, src=peer)
        return bool((got == peer).all())

    assert two.run(job) == [True, True]


def test_mismatch_names_both_sides(two):
    """A message of another dtype or length is an error with both calls, and the group goes on."""

    def job():
        if dist.get_rank() == 0:
            dist.send(torch.ones(3), dst=1)
            dist.send(torch.ones(2, dtype=torch.int64), dst=1)
            dist.send(torch.ones(2), dst=1)
            return None
        said = [raised(dist.recv, torch.zeros(2), src=0)[1] for _ in range(2)]
        tensor = torch.zeros(2)
        dist.recv(tensor, src=0)
        return said, tensor.tolist()

    (longer, other), values = two.run(job)[1]
    assert "recv(float32[2], src=rank 0" in longer
    assert "send(float32[3], dst=rank 1" in longer
    assert "send(int64[2], dst=rank 1" in other
    assert values == [1, 1]


def test_while_a_collective_is_open(two):
    """Point to point does not queue behind collectives."""

    def job():
        rank = dist.get_rank()
        tensor = torch.ones(1)
        if rank == 0:
            pending = dist.all_reduce(tensor, async_op=True)
            dist.send(torch.ones(1), dst=1)  # rank 1 joins the all_reduce only after this
        else:
            dist.recv(torch.zeros(1), src=0)
            pending = dist.all_reduce(tensor, async_op=True)
        pending.wait()
        return tensor.item()

    assert two.run(job) == [2, 2]


def test_timeout(two):
    def job():
        request = dist.irecv(torch.zeros(1), src=1 - dist.get_rank(), tag=77)
        began = time.monotonic()
        error = raised(request.wait, timedelta(seconds=0.3))
        took = time.monotonic() - began
        dist.barrier()
        return error, took

    for (kind, text), took in two.run(job):
        assert kind == "DistBackendError"
        assert "tag=77" in text
        assert 0.3 <= took < 10


# -- batches -------------------------------------------------------------------------------


def ring_shift():
    """The documented example."""
    rank, size = dist.get_rank(), dist.get_world_size()
    send_tensor = torch.arange(2, dtype=torch.float32) + 2 * rank
    recv_tensor = torch.randn(2, dtype=torch.float32)
    send_op = dist.P2POp(dist.isend, send_tensor, (rank + 1) % size)
    recv_op = dist.P2POp(dist.irecv, recv_tensor, (rank - 1 + size) % size)
    requests = dist.batch_isend_irecv([send_op, recv_op])
    for request in requests:
        request.wait()
    return len(requests), recv_tensor.tolist()


def test_batch_example(two, three):
    assert two.run(ring_shift) == [(2, [2, 3]), (2, [0, 1])]
    assert three.run(ring_shift) == [(2, [4, 5]), (2, [0, 1]), (2, [2, 3])]


def test_batch_order(two):
    """Several messages between the same two ranks pair in the order of the lists."""

    def job():
        rank, peer = dist.get_rank(), 1 - dist.get_rank()
        sent = [torch.tensor([10.0 * rank + i]) for i in range(3)]
        got = [torch.zeros(1) for _ in range(3)]
        ops = [dist.P2POp(dist.irecv, t, peer) for t in got]
        ops += [dist.P2POp(dist.isend, t, peer) for t in sent]
        for request in dist.batch_isend_irecv(ops):
            request.wait()
        return [t.item() for t in got]

    assert two.run(job) == [[10, 11, 12], [0, 1, 2]]


def test_batch_of_some_ranks(three):
    """After the group's first collective some of its ranks may exchange by batch alone."""

    def job():
        dist.barrier()
        rank, got = dist.get_rank(), torch.zeros(1)
        if rank < 2:
            mine = dist.P2POp(dist.isend, torch.tensor([float(rank)]), 1 - rank)
            for request in dist.batch_isend_irecv([mine, dist.P2POp(dist.irecv, got, 1 - rank)]):
                request.wait()
        return got.item()

    assert three.run(job) == [1, 0, 0]


def test_p2pop(four):
    """P2POp shows what it was given; group_peer is a rank of the group."""

    def job():
        group = dist.new_group([1, 3])
        tensor, rank = torch.tensor([float(dist.get_rank())]), dist.get_rank()
        if rank not in (1, 3):
            return None
        other = 1 if rank == 1 else 0
        got = torch.zeros(1)
        ops = [
            dist.P2POp(dist.isend, tensor, group=group, group_peer=other, tag=5),
            dist.P2POp(dist.irecv, got, group=group, group_peer=other, tag=5),
        ]
        for request in dist.batch_isend_irecv(ops):
            request.wait()
        seen = ops[0].op is dist.isend, ops[0].tensor is tensor, ops[0].peer, ops[0].tag
        both = raised(dist.P2POp, dist.isend, tensor, 3, group, 0, 1)[0]
        wrong = raised(dist.P2POp, dist.all_reduce, tensor, 3)[0]
        return got.item(), seen, both, wrong

    results = four.run(job)
    assert results[1] == (3, (True, True, 3, 5), "ValueError", "ValueError")
    assert results[3] == (1, (True, True, 1, 5), "ValueError", "ValueError")


def test_tags_in_a_batch(two):
    def job():
        rank, peer = dist.get_rank(), 1 - dist.get_rank()
        got = [torch.zeros(1) for _ in range(2)]
        ops = [dist.P2POp(dist.isend, torch.tensor([t]), peer, tag=int(t)) for t in (1.0, 2.0)]
        ops += [dist.P2POp(dist.irecv, got[t - 1], peer, tag=t) for t in (2, 1)]
        for request in dist.batch_isend_irecv(ops):
            request.wait()
        return rank, [t.item() for t in got]

    assert two.run(job) == [(0, [1, 2]), (1, [1, 2])]


def test_coalescing_manager(two):
    """One Work for all operations since the beginning, collectives and point to point."""

    def job():
        rank, peer = dist.get_rank(), 1 - dist.get_rank()
        cpu = torch.device("cpu")
        sent, got = torch.tensor([rank + 1.0]), torch.zeros(1)
        with dist._coalescing_manager(device=cpu, async_ops=True) as manager:
            dist.isend(sent, peer)
            dist.irecv(got, peer)
        manager.wait()
        summed = [torch.full((2,), float(rank + i)) for i in range(3)]
        with dist._coalescing_manager(async_ops=True) as manager:
            for tensor in summed:
                dist.all_reduce(tensor)
        manager.wait()
        device_summed = [torch.full((2,), float(rank + i)) for i in range(3)]
        with dist._coalescing_manager(device=cpu, async_ops=True) as manager:
            for tensor in device_summed:
                dist.all_reduce(tensor)
        manager.wait()
        return got.item(), [t[0].item() for t in summed], [t[0].item() for t in device_summed]

    assert two.run(job) == [(2, [1, 3, 5], [1, 3, 5]), (1, [1, 3, 5], [1, 3, 5])]


# -- objects -------------------------------------------------------------------------------


def exchange_objects(**how):
    objects = ["foo", 12, {1: 2}] if dist.get_rank() == 0 else [None, None, None]
    if dist.get_rank() == 0:
        returned = dist.send_object_list(objects, dst=1, **how)
    else:
        returned = dist.recv_object_list(objects, src=0, **how)
    return returned, objects


@pytest.mark.parametrize("how", [{}, {"device": torch.device("cpu")}, {"use_batch": True}])
def test_object_lists(two, how):
    expected = ["foo", 12, {1: 2}]
    assert two.run(exchange_objects, **how) == [(None, expected), (0, expected)]


def test_object_lists_need_pickle(two):
    def job():
        if dist.get_rank() == 0:
            return raised(dist.send_object_list, [lambda: 0], dst=1)[0]
        return None

    assert two.run(job)[0] in ("PicklingError", "AttributeError")


def test_object_list_addresses(two):
    def job():
        return [
            raised(dist.send_object_list, [1])[0],
            raised(dist.send_object_list, [1], dst=1, group_dst=1)[0],
            raised(dist.recv_object_list, [1], src=1, group_src=1)[0],
        ]

    assert two.run(job) == [["ValueError"] * 3] * 2


def test_objects_are_pickles(two):
    """Whoever receives runs what the sender says: only from ranks that are trusted."""

    class Runs:
        def __reduce__(self):
            return eval, ("'this ran on rank ' + str(__import__('os').environ['RANK'])",)

    def job():
        if dist.get_rank() == 0:
            dist.send_object_list([Runs()], dst=1)
            return None
        got = [None]
        dist.recv_object_list(got, src=0)
        return got

    assert two.run(job)[1] == ["this ran on rank 1"]


def test_object_list_from_anybody(two):
    """Documented for src=None; torch wants to know from whom. If it no longer does: say so."""

    def job():
        if dist.get_rank() == 1:
            return raised(dist.recv_object_list, [None])
        return None

    kind, text = two.run(job)[1]
    assert kind == "ValueError"
    assert "Must specify global_rank or group_rank" in text
